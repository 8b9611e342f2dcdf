"""The state of reading a script that a log echoes."""

from __future__ import annotations

import re

from golf.field.event_lines import RULE, has_format_code
from golf.field.log_lines import SettingLine, SizeLine, StepLine, StopLine, read_line

LONGEST_SAMPLE = 200  # lines of sample output in the documentation of a script
SURE_SIGNS = {  # signs of a run's beginning that end an echoed script
    *("val_bpb:enabled", "train_loader:", "hyperparameters:", "running python", "model_params:", "train_shards:"),
}
_SOURCE = re.compile(
    r"^(?:import |from \w[\w.]* import |def \w+\(|class \w+[(:]|async def |@\w+|#!|if __name__|\"\"\"|'''|try:|except |"
    r"[A-Z_]{3,} = |return |#\s)|^\s+(?:return\b|if .*:$|for .* in .*:$|self\.|log0?\(|f\"|assert |with .*:$|else:|"
    r"elif .*:|raise |[\w.\[\]]+ = |\w+\()|^\s*[)\]}],?$"
)
# A comment opens no script: people write headings such as `# --- eval` into logs.
_OPENS = ("import ", "from ", '"""', "'''", "#!")
# What can only be the beginning of a program, even in the middle of a log.
_PROGRAM = re.compile(r"^(?:import \w[\w.]*(?:,| as |$)|from \w[\w.]* import |#!)")
# What may follow an echoed script; a quick no for nearly every line of one.
_ENDS_SOURCE = re.compile(
    r"=|val_bpb:e|train_loader:d|hyperparam|running py|model_params:\d|train_shards:\s*\d|step|\[|\d|stopping"
    r"|serialized|code size|total sub|artifact:|budget:",
    re.IGNORECASE,
)
_QUOTES = re.compile(r"\"{3}|'{3}")


def looks_like_source(text: str) -> bool:
    """Tell whether a line is one of a Python program."""
    return bool(_SOURCE.match(text)) or has_format_code(text)


class EchoedSource:
    """Tells lines of an echoed script from those that a run prints."""

    def __init__(self) -> None:
        self.is_open = False
        self.left_line = 0  # line that seemed to end the script; 0 once a run's header followed
        self.quotes = ""  # triple quotes of the docstring that is open
        self.quotes_line = 0  # line with the quotes that opened it

    def goes_on(self, number: int, text: str) -> bool:
        """Tell whether the line belongs to the open script. Closes the script at the first line that does not."""
        # Quotes in a string or a cut script can leave a docstring open that never ends.
        in_docstring = bool(self.quotes) and number - self.quotes_line <= LONGEST_SAMPLE
        self.is_open = self.is_open and _is_inside(text, in_docstring)
        self._take_quotes(number, text)
        if not self.is_open:
            self.left_line = number
        return self.is_open

    def is_sample(self, number: int) -> bool:
        """Tell whether the lines since the script seemed to end may be sample output in its documentation."""
        return self.left_line > 0 and number - self.left_line <= LONGEST_SAMPLE

    def begins(self, number: int, text: str, run_has_begun: bool) -> bool:
        """Tell whether a script begins with this line, and open it if so."""
        # Generated text and tracebacks after the first step may look like documentation of a script.
        is_sure = run_has_begun and not self.is_sample(number)
        self.is_open = (bool(_PROGRAM.match(text)) if is_sure else text.startswith(_OPENS)) and looks_like_source(text)
        self._take_quotes(number, text)
        return self.is_open

    def _take_quotes(self, number: int, text: str) -> None:
        """Follow the docstrings of the open script."""
        if not self.is_open:
            self.quotes = ""
            return
        for quotes in _QUOTES.findall(text):
            if not self.quotes:
                self.quotes, self.quotes_line = quotes, number
            # Triple quotes of the other kind are text of the docstring that is open.
            elif quotes == self.quotes:
                self.quotes = ""


def _is_inside(text: str, in_docstring: bool) -> bool:
    """Tell whether an echoed script goes on with this line. Not every log ends one with equals signs."""
    line = read_line(text) if _ENDS_SOURCE.match(text) else None
    # The challenge's scripts print a line of equals signs behind their own source.
    if line is RULE:
        return False
    if isinstance(line, SettingLine):
        # An assignment in a script reads like a setting, so only a sure sign of a run's header ends the script.
        return line.opens not in SURE_SIGNS or looks_like_source(text)
    # A step line without time or number of steps may be an example in the script's documentation.
    timed = isinstance(line, StepLine) and (line.seconds is not None or line.of is not None)
    return in_docstring or not (timed or isinstance(line, (StopLine, SizeLine)))
