"""Write golf/field/known_scripts.csv and docs/from_env.md: `python scripts/dev/known_scripts.py CHECKOUT`.

CHECKOUT is a clone of the public repository that has the pull requests, too:
`git clone https://github.com/openai/parameter-golf CHECKOUT`, then in it
`git fetch origin "+refs/pull/*/head:refs/pull/*/head"`. Nothing of it is kept but digests of functions, names of
variables and numbers. The column `line` of the table, the variables of the published run, is kept as it is.
"""

from __future__ import annotations

import csv
import io
import shlex
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from golf.field import known_scripts
from golf.field.known_scripts import TABLE, entries
from golf.field.script_reader import read_script
from golf.field.script_translation import translated_script
from golf.field.script_variables import ScriptVariables, variables_of_log, variables_of_script
from golf.lab.report.changes import differing_keys
from golf.paths import ROOT
from golf.run.identity import identity
from golf.settings.composition import compose

COLUMNS = ("folder", "experiment", "line", "settled", "overrides", "like", "digests")
# Where the script is not train_gpt.py, or only starts another file.
OTHER_FILES = {
    "2026-03-19_smeargate_orthoinit_muonwd": "train_gpt_v5.py",
    "2026-03-24_74M_Ternary_UNet_FP8_10L_8192BPE_YaRN_NeoMuon": "train_gpt_cuda_ternary.py",
    "2026-04-06_SP8192_HessianSDClip_ProgressiveRecurrence": "train_gpt_decode.py",
}
LOG = "2026-03-19_int6_STE QAT_ MLP_bigram _U_Net"  # has no script beside its log
PAGE, PROSE = ROOT / "docs/from_env.md", Path(__file__).parent / "pages/from_env.txt"


def main(checkout: Path) -> None:
    """Write the table, then the page."""
    with (ROOT / "docs/records.csv").open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    lines = {known["folder"]: known["line"] for known in _rows()}
    of_records = [(checkout, record, lines.get(record["folder"], "")) for record in records]
    with ProcessPoolExecutor() as workers:
        rows = [*workers.map(row_of, *zip(*of_records, strict=True))]
    _shorten(rows)
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with ProcessPoolExecutor() as workers:  # which read the table anew
        said = [*workers.map(line_of, rows, *zip(*of_records, strict=True))]
    equal = sum(line[1] == "0" and line[2] == "0" for line in said)
    body = "\n".join(f"| {' | '.join(line)} |" for line in said)
    PAGE.write_text(PROSE.read_text(encoding="utf-8").format(rows=body, count=len(said), equal=equal), encoding="utf-8")


def _shorten(rows: list[dict[str, str]]) -> None:
    """Write the digests of each row as the difference from those of the earlier row that is most like it, in place."""
    sets = [frozenset(row["digests"].split()) for row in rows]
    for place, row in enumerate(rows):
        best = min(range(place), key=lambda i: len(sets[i] ^ sets[place]), default=None)
        row["like"] = "" if best is None else rows[best]["folder"]
        row["digests"] = " ".join(sorted(sets[place] ^ (frozenset() if best is None else sets[best])))


def _rows() -> list[dict[str, str]]:
    if not TABLE.exists():
        return []
    with TABLE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def script_of(checkout: Path, record: dict[str, str]) -> ScriptVariables:
    """Return the script of a record: of `main`, or of its pull request where that is open."""
    folder = record["folder"]
    of = f"refs/pull/{record['pr']}/head" if record["status"] == "frontier" else "HEAD"
    name = "train.log" if folder == LOG else OTHER_FILES.get(folder, "train_gpt.py")
    path = f"records/track_10min_16mb/{folder}/{name}"
    archive = subprocess.run(["git", "-C", checkout, "archive", of, path], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as place, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(place, filter="data")
        if folder == LOG:
            return variables_of_log(Path(place) / path)
        return variables_of_script(read_script(Path(place) / path), name)


KNOWN = known_scripts.known_scripts


def row_of(checkout: Path, record: dict[str, str], line: str) -> dict[str, str]:
    """Return the row of a record; its translation is that of a script which is no known one."""
    script = script_of(checkout, record)
    known_scripts.known_scripts = lambda: ()  # type: ignore[assignment]
    try:
        found = translated_script(line, script)
    finally:
        known_scripts.known_scripts = KNOWN
    assert script.tree is not None
    translation = found.translation
    return {
        "folder": record["folder"],
        "experiment": record["experiment"],
        "line": line,
        "settled": shlex.join([*translation.inexpressible, *translation.unknown]),
        "overrides": shlex.join(translation.overrides),
        "digests": " ".join(sorted(entries(script.tree, {**script.defaults, **translation.given}))),
    }


def line_of(row: dict[str, str], checkout: Path, record: dict[str, str], line: str) -> list[str]:
    """Return folder, exit status, settings unlike the preset's, and those by names and marks alone."""
    known_scripts.known_scripts.cache_clear()
    found = translated_script(line, script_of(checkout, record))
    preset = identity(compose([f"experiment={row['experiment']}", "scale=record"]))
    whole = len(differing_keys([preset, identity(compose(found.overrides))]))
    try:
        marks = str(len(differing_keys([preset, identity(compose(found.translation.overrides))])))
    except Exception:
        marks = "–"
    return [row["folder"], "1" if found.missing else "0", str(whole), marks, "; ".join(found.missing)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
