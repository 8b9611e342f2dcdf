"""Numbers before nouns in f-strings are `counted`, so that nothing prints `1 runs`; values are spelled as overrides."""

from __future__ import annotations

import ast
import re

import pytest

from golf.words import as_override, counted
from tests.support import ROOT

NOUNS = "runs|seeds|jobs|sweeps|variants|logs|results|files|folders|faults|cores|layers|GPUs|ranks|lines|keys|steps"
COUNTED_NOUN = re.compile(rf"( (?:more|other|finished|different|own|equal))? ({NOUNS})\b")
# Sentences that are printed for two or more only, names of quantities, and text in the form of the public scripts.
TWO_OR_MORE = {
    "commands/power_command.py": "variants seeds",
    "field/claims.py": "seeds",
    "field/folder_audit.py": "logs runs",
    "field/folder_reader.py": "seeds",
    "field/import_tables.py": "lines runs",
    "field/log_reader.py": "runs",
    "field/reference.py": "variants",
    "field/run_audit.py": "runs",
    "field/submitted_runs.py": "runs",
    "lab/plan/gpu_plan.py": "ranks",
    "lab/plan/probe.py": "steps ranks",
    "lab/report/board_server.py": "runs",
    "lab/report/comparison.py": "runs seeds",
    "lab/report/expectation.py": "steps seeds variants",
    "lab/report/origin.py": "steps",
    "lab/report/power.py": "seeds",
    "lab/report/remarks.py": "variants",
    "lab/report/statistics.py": "runs seeds",
    "lab/report/study.py": "variants",
    "settings/consistency.py": "steps",
    "settings/hardware.py": "GPUs",
    "submission/readme.py": "seeds lines",
    "submission/record_folder.py": "seeds",
    "submission/rehearsal.py": "lines",
    "submission/runs.py": "variants",
    "training/loop/proving.py": "steps",
    "training/memory.py": "ranks",
    "training/ranks.py": "ranks",
}


def test_a_noun_follows_its_number() -> None:
    assert [counted(n, "try") for n in (0, 1, 2000)] == ["0 tries", "1 try", "2,000 tries"]
    assert [counted(n, "key") for n in (1, 3)] == ["1 key", "3 keys"]


def test_numbers_before_nouns_are_counted() -> None:
    found = []
    for path in sorted((ROOT / "golf").rglob("*.py")):
        exempt = TWO_OR_MORE.get(str(path.relative_to(ROOT / "golf")), "").split()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr):
                continue
            for number, text in zip(node.values, node.values[1:], strict=False):
                if isinstance(number, ast.FormattedValue) and isinstance(text, ast.Constant):
                    noun = COUNTED_NOUN.match(str(text.value))
                    if noun and "counted" not in ast.unparse(number) and noun[2] not in exempt:
                        found.append(f"{path}:{number.lineno}: {ast.unparse(number)[2:-1]}{noun[0]}")
    assert not found, "use golf.words.counted:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8999999999999999, "0.9"),
        (0.30000000000000004, "0.3"),
        (0.123456789, "0.123456789"),
        (1e-08, "1e-08"),
        (20000.0, "20000"),
        (3, "3"),
        (True, "true"),
        (None, "null"),
        ("keep", "keep"),
        ([9, 0.1 + 0.2], "[9,0.3]"),
    ],
)
def test_settings_are_written_as_overrides_in_their_shortest_form(value: object, text: str) -> None:
    assert as_override(value) == text
