"""The environment variables of a public script: their defaults, and those that it declares and never reads.

They are read from the script, from one that a log echoes, or from the settings that a log prints. A script says what it
always has. Printed settings are the values that the run had; everything else about the script stays unknown.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

from golf.errors import GolfError
from golf.field.script_reader import Script, parsed_script, read_script
from golf.field.script_reads import names_in_texts, variable_of
from golf.field.script_structure import script_structure
from golf.field.text import TextFile, UnreadableError
from golf.field.translation import Structure

SCRIPT, LOGS = "train_gpt.py", (".log", ".txt")
_RULE = re.compile(r"^={20,}$", re.MULTILINE)  # around an echoed script
_BEGIN = re.compile(r"^(?:from|import) \w", re.MULTILINE)
_BLOCK = re.compile(r"^Hyperparameters:\n((?: +\w+: ?.*\n)+)", re.MULTILINE)
_SETTING = re.compile(r"^ +(\w+): ?(.*)$", re.MULTILINE)
# Settings that the scripts of March print in a line or two. Their `embed_lr` is that of the tied embedding.
_PRINTED = {
    *("tie_embeddings", "embed_lr", "head_lr", "matrix_lr", "scalar_lr", "train_batch_tokens", "train_seq_len"),
    *("iterations", "warmup_steps", "max_wallclock_seconds", "seed", "num_heads", "num_kv_heads"),
}
_PAIR = re.compile(r"(?<![\w/])([a-z_]+):(\w[\w.+-]*)")
_MODEL_PARAMS = re.compile(r"^model_params:\s*([\d,]+)", re.MULTILINE)
_AS_NUMBER = {"True": "1", "False": "0", "None": ""}


@dataclass
class ScriptVariables:
    """Variables by name."""

    defaults: dict[str, str | None] = field(default_factory=dict)  # as text; None for one that is computed
    unread: set[str] = field(default_factory=set)  # put into a setting that nothing uses
    is_script: bool = True  # False: settings that a log prints, without the script
    printed: dict[str, str] = field(default_factory=dict)  # values that a log prints of the script's variables
    model_params: int | None = None  # as a log counts them
    tree: ast.Module | None = None  # the script's source
    structure: Structure = field(default_factory=Structure)  # what it has without a variable


def public_variables(path: Path) -> ScriptVariables:
    """Return the variables of a script, of a log, or of a record folder, in which a script comes before its logs.

    Nothing is run. Raises `GolfError` if no variables are found.
    """
    if path.is_dir():
        if (path / SCRIPT).is_file():
            return public_variables(path / SCRIPT)
        logs = [variables_of_log(log) for log in sorted((*path.glob("*.log"), *path.glob("*.txt")))]
        # A log with the script says more than one with settings.
        best = max(logs, key=lambda log: (log.is_script, len(log.defaults)), default=ScriptVariables())
        if not best.defaults:
            raise GolfError(f"{path} has neither {SCRIPT} nor a log with settings: name a script or another folder.")
        return best
    if not path.is_file():
        raise GolfError(f"{path} is no file: name the train_gpt.py that the command line is for.")
    is_log = path.suffix in LOGS
    variables = variables_of_log(path) if is_log else variables_of_script(read_script(path), path.name)
    if not variables.defaults:
        lacks = (
            "neither echoes a script nor prints settings"
            if is_log
            else "reads no variable of the environment, and constants are not read"
        )
        raise GolfError(f"{path} {lacks}: name another script or log.")
    return variables


def variables_of_log(path: Path) -> ScriptVariables:
    """Return the variables of the script that a log echoes, with the values that it prints; empty without either."""
    try:
        text = "\n".join(line for _, line in TextFile(path))
    except UnreadableError as error:
        raise GolfError(f"{path} {error}.") from error
    script = echoed_script(text)
    variables = variables_of_script(script, path.name) if script else ScriptVariables(is_script=False)
    printed = printed_settings(text)
    variables.printed = {name: value for name, value in printed.items() if not script or name in variables.defaults}
    variables.defaults |= variables.printed
    if not script:
        _add_what_settings_tell(variables)
    if counted := _MODEL_PARAMS.search(text):
        variables.model_params = int(counted[1].replace(",", ""))
    return variables


def _add_what_settings_tell(variables: ScriptVariables) -> None:
    """Add what is true of every script that prints certain settings."""
    if "ROPE_TRAIN_SEQ_LEN" in variables.defaults:
        # All that declare it turn heads by the training length instead.
        variables.unread.add("ROPE_TRAIN_SEQ_LEN")
        variables.structure.settings.append("tech.partial_rope.reference_len=null")
    if "PHASED_TTT_NUM_PHASES" in variables.defaults:
        # Scripts with phases score by document and have no sliding windows any more.
        variables.unread.add("EVAL_STRIDE")


def echoed_script(text: str) -> Script | None:
    """Return the longest part of a log between lines of equals signs that is a script which reads the environment."""
    for part in sorted(_RULE.split(text), key=len, reverse=True):
        begin = _BEGIN.search(part)
        if begin and "environ" in part:
            script = parsed_script(part[begin.start() :])
            if script.tree is not None:
                return script
    return None


def printed_settings(text: str) -> dict[str, str]:
    """Return the settings that the first run of a log prints, by the variables that they are of."""
    if block := _BLOCK.search(text):
        return {name.upper(): _AS_NUMBER.get(value, value) for name, value in _SETTING.findall(block[1])}
    # Echoed scripts and later runs have such words, too: the first value counts, outside of source.
    pairs: dict[str, str] = {}
    for name, value in _PAIR.findall(_RULE.split(text)[-1] if "environ" in text else text):
        if name in _PRINTED:
            pairs.setdefault(name, _AS_NUMBER.get(value, value))
    if pairs.get("tie_embeddings") == "1":
        # The rate of a head that is not there is printed as zero, whatever it is set to.
        pairs.pop("head_lr", None)
        if "embed_lr" in pairs:
            pairs["tied_embed_lr"] = pairs.pop("embed_lr")
    return {name.upper(): value for name, value in pairs.items()}


def variables_of_script(script: Script, name: str) -> ScriptVariables:
    """Return the variables of `script`, which errors call `name`. Raises `GolfError` if it cannot be read."""
    if script.tree is None:
        raise GolfError(f"{name} cannot be read as a script: {script.problem}.")
    if script.is_still_packed:
        raise GolfError(f"{name} is packed in a way that is not read here: name the unpacked script.")
    variables = ScriptVariables(tree=script.tree)
    holders: dict[str, set[str | None]] = {}  # variable → settings that hold it; None for any other use
    # The first walk notes the name that each expression is assigned to; the second one finds variables in these
    # expressions.
    owners: dict[int, str] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [getattr(target, "attr", getattr(target, "id", "")) for target in targets]
            if len(names) == 1 and names[0]:
                owners |= {id(inner): names[0] for inner in ast.walk(node.value)}
    for node in ast.walk(script.tree):
        if (variable := variable_of(node)) is not None:
            name, default = variable
            variables.defaults.setdefault(name, default)
            holders.setdefault(name, set()).add(owners.get(id(node)))
    # What is read by a computed name may be any of the names in its texts, with a default that is not known.
    for name in names_in_texts(script.tree):
        variables.defaults.setdefault(name, None)
    used = _used_names(script.tree)
    variables.unread = {name for name, of in holders.items() if None not in of and not of & used}
    variables.structure = script_structure(script.tree, variables.defaults)
    return variables


def _used_names(tree: ast.Module) -> set[str]:
    """Return the names that the script loads, as variables, attributes or texts such as those of `getattr`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names
