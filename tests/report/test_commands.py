"""scripts/report.py, power.py and ledger.py from the command line."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.runs import write_lr_sweep
from tests.support import ROOT

SCORES = {0.04: [1.2286, 1.2279, 1.2291], 0.02: [1.2230, 1.2238, 1.2225], 0.015: [1.2234, 1.2229, 1.2241]}


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a person types it; also shows on standard error whether torch was imported."""
    code = (
        f"import runpy, sys; sys.argv[0] = {name!r}\ntry: runpy.run_path({f'scripts/{name}.py'!r}, run_name='__main__')"
    )
    code += "\nfinally: print('torch:', 'torch' in sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)


def test_report_prints_a_table_and_writes_a_page(runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, SCORES)
    done = script("report", "lr", "--rules", "strict", "--html", str(tmp_path / "lr.html"), "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "torch: False\n"
    rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert rows["0.04"]["verdict"] == "reference" and rows["0.02"]["verdict"] == "margin not shown"
    assert (tmp_path / "lr.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing"], "nothing is no sweep and no folder of runs. Sweeps: lr."),
        (["lr", "--rules", "strikt"], "rules=strikt does not exist; did you mean strict?"),
        (["lr", "--reference", "0.9"], "The reference 0.9 is not among the variants"),
        (["lr", "--html", "/proc/x.html"], "/proc/x.html cannot be written"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, arguments: list[str], says: str) -> None:
    write_lr_sweep(runs, {0.04: [1.2286], 0.02: [1.2230]})
    done = script("report", *arguments)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr and done.stdout == ""


def test_power_of_given_and_of_measured_noise(runs: Path) -> None:
    done = script("power", "--sigma", "0.0013", "--difference", "0.008", "--nats", "--rules", "strict")
    assert "6 seeds of each of the two variants find a difference of 0.008 nats 80% of the time" in done.stdout
    write_lr_sweep(runs, SCORES)
    done = script("power", "--runs", "lr", "--difference", "0.002", "--format", "csv")
    assert done.stdout.splitlines()[0] == "seeds,smallest_difference_bpb,in_sigma,power"
    assert script("power", "--difference", "0.002").stderr.startswith("error: How much seeds scatter is not said")


def test_ledger_of_nothing_says_where_it_looked(runs: Path) -> None:
    done = script("ledger")
    assert done.returncode == 2 and f"Nothing has finished under {runs} yet" in done.stderr
    write_lr_sweep(runs, SCORES)
    assert "optim.matrix_lr=0.02" in script("ledger", "--format", "markdown").stdout
