"""`golf report`, `power` and `ledger` from the command line."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from golf.commands import power_command
from golf.commands.parsing import CommandParser
from golf.settings.config import RulesConfig
from tests.lab.report.runs import write_lr_sweep
from tests.support import ROOT, golf_command

SCORES = {0.04: [1.2286, 1.2279, 1.2291], 0.02: [1.2230, 1.2238, 1.2225], 0.025: [1.2250, 1.2243, 1.2257]}


def test_a_report_is_made_without_torch(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    code = "import sys\nfrom golf.commands.cli import main\ntry: sys.exit(main(['report', 'lr']))\n"
    code += "finally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert done.returncode == 0 and "1.2231" in done.stdout and done.stdout.endswith("False\n"), done.stderr


def test_report_prints_a_table_and_writes_a_page(runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, SCORES)
    done = golf_command("report", "lr", "--rules", "strict", "--html", str(tmp_path / "lr.html"), "--format", "csv")
    assert done.returncode == 0, done.stderr
    rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert rows["0.04"]["verdict"] == "reference" and rows["0.025"]["verdict"] == "margin not shown"
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
    done = golf_command("report", *arguments)
    assert done.returncode == 2 and says in done.stderr and done.stdout == ""


def test_power_of_given_and_of_measured_noise(runs: Path) -> None:
    done = golf_command("power", "--sigma", "0.0013", "--difference", "0.008", "--nats", "--rules", "strict")
    assert "6 seeds of each of the two variants find a difference of 0.008 nats 80% of the time" in done.stdout
    write_lr_sweep(runs, SCORES)
    done = golf_command("power", "--runs", "lr", "--difference", "0.002", "--format", "csv")
    assert done.stdout.splitlines()[0] == "seeds,smallest_difference_bpb,in_sigma,power"
    assert golf_command("power", "--difference", "0.002").stderr.startswith("error: How much seeds scatter is not said")
    assert "2 or more" in golf_command("power", "--sigma", "0.001", "--variants", "1").stderr


def test_ledger_of_nothing_says_where_it_looked(runs: Path) -> None:
    done = golf_command("ledger")
    assert done.returncode == 2 and f"Nothing has finished under {runs} yet" in done.stderr
    write_lr_sweep(runs, SCORES)
    assert "optim.matrix_lr=0.02" in golf_command("ledger", "--format", "markdown").stdout


def test_power_knows_what_seeds_share() -> None:
    plain, shared = (
        golf_command("power", "--sigma", "0.009", "--difference", "0.006", "--variants", "6", *more).stdout
        for more in ((), ("--shared", "0.8"))
    )
    needed = [int(found[1]) for text in (plain, shared) if (found := re.search(r"(\d+) seeds of each", text))]
    # A fifth of the variance takes about a fifth of the seeds.
    assert needed[1] < needed[0] / 3 and "share 0.80 of the variance" in shared
    assert "below 1" in golf_command("power", "--sigma", "0.001", "--shared", "1").stderr
    assert "--published out" in golf_command("power", "--sigma", "0.001", "--shared", "0.5", "--published").stderr


def test_power_asks_for_more_seeds_where_none_of_these_would_do() -> None:
    args = CommandParser("power", None).parse_args(["--sigma", "0.001"])
    table = power_command._table(args, RulesConfig(alpha=0.001))
    assert table.rows[0]["in_sigma"] is None and table.rows[1]["in_sigma"] == pytest.approx(11.5, abs=0.1)
    assert "At 2 seeds no difference up to 50 sd is found so often: take more seeds." in table.notes
