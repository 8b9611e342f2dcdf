"""Tables of tries: which column is read, what counts as noise, and which keeps stand against it."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.commands.cli import main
from golf.errors import GolfError
from golf.field.loop_table import LoopTable, Try, read_table
from golf.field.loop_verdicts import YES, Noise, keeps, keeps_table, noise_of

LOOP = """commit\tval_bpb\tartifact_mb\tmemory_gb\tstatus\tdescription
a1b2c3d\t1.3745\t11.96\t10.0\tkeep\tbaseline: 9 layers
b2c3d4e\t1.3413\t11.99\t10.0\tkeep\tsliding windows
c3d4e5f\t1.3560\t11.98\t10.0\tdiscard\tXSA in the last 4
d4e5f6a\t0.000000\t0.0\t0.0\tcrash\tdouble width (out of memory)
e5f6a7b\t1.3410\t11.99\t10.0\tkeep\tembedding rate 0.05
"""


def written(folder: Path, text: str, name: str = "results.tsv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_keeps_of_a_loop_without_a_repetition_have_unknown_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, LOOP)
    assert main(["report", str(path), "--exit"]) == 11
    said = capsys.readouterr().out
    assert "5 tries, 3 kept" in said and "The noise is unknown" in said and "--sigma" in said


def test_a_named_noise_tells_which_keeps_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, LOOP)
    assert main(["report", str(path), "--sigma", "0.0004", "--json", "--exit"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["try"] for row in rows] == ["a1b2c3d", "b2c3d4e", "e5f6a7b"]
    assert [row["all_tries"] for row in rows] == [None, "stands", "within_noise"]
    assert main(["report", str(path), "--sigma", "0.05", "--exit"]) == 10


def test_the_least_gain_is_that_of_two_runs_and_grows_with_the_tries() -> None:
    """A public loop of 125 runs with a standard deviation of 0.0004: 0.00093 for one comparison."""
    noise = Noise(0.0004, float("inf"), "")
    assert noise.least_gain(1) == pytest.approx(0.00093, abs=5e-6)
    assert noise.least_gain(124) == pytest.approx(0.00190, abs=5e-6)
    # A deviation from three runs is itself uncertain.
    assert Noise(0.0004, 2, "").least_gain(1) == pytest.approx(2.920 * 0.0004 * 2**0.5, rel=1e-3)


def test_noise_is_that_of_one_configuration_under_several_seeds(tmp_path: Path) -> None:
    text = "run_id,layers,val_bpb\na_seed1,9,1.20\na_seed2,9,1.21\nb_s1,11,1.10\nb_s7,11,1.13\nb_s8,11,1.12\nc,9,1.5\n"
    noise = noise_of(read_table(written(tmp_path, text, "runs.csv")))
    squares = statistics.variance([1.20, 1.21]) + 2 * statistics.variance([1.10, 1.13, 1.12])
    assert noise is not None and noise.freedom == 3
    assert noise.sigma == pytest.approx((squares / 3) ** 0.5)


@pytest.mark.parametrize(
    "text",
    [
        # Another setting: not one configuration, although a seed is in both names.
        "name,layers,val_bpb\na_seed1,9,1.2\na_seed2,11,1.1\nc_seed1,9,1.3\nd_seed1,11,1.4\n",
        # Equal words of an agent that thinks aloud.
        "run_id,val_bpb,reasoning\nq1,1.2,deeper seems better\nq2,1.1,deeper seems better\n",
        # One run, written twice.
        "name,seed,val_bpb\nbase,1,1.2\nbase,1,1.2\n",
    ],
)
def test_other_repetitions_are_no_noise(text: str, tmp_path: Path) -> None:
    assert noise_of(read_table(written(tmp_path, text, "runs.csv"))) is None


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("id\tparent\tval_bpb\tpre_quant_bpb\tquant_tax\tstatus", "val_bpb"),
        ("rank\tid\tstatus\tfinalValBpb\tfinalValLoss", "finalValBpb"),
        ("experiment\tseed\tlast_val_bpb\troundtrip_val_bpb\troundtrip_exact_val_bpb", "roundtrip_exact_val_bpb"),
        ("seed\tfp_val_bpb_final\tq_val_bpb_final\tval_bpb_gap", "q_val_bpb_final"),
        ("id\tname\tpost_quant_val_bpb\tpre_quant_val_bpb", "post_quant_val_bpb"),
        ("commit\tbest_val_bpb\tpre_quantization_bpb", "best_val_bpb"),
    ],
)
def test_the_score_is_that_of_the_artifact(header: str, column: str, tmp_path: Path) -> None:
    row = "\t".join(str(1 + i / 10) for i in range(header.count("\t") + 1))
    assert read_table(written(tmp_path, f"# a comment\n{header}\n{row}\n")).column == column


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("name\tloss\na\t3.1\n", "no column with a score in bits per byte"),
        ("name\tint6_bpb\tint8_bpb\na\t1.2\t1.1\n", "choose with --column one of int6_bpb, int8_bpb"),
        ("step\ttrain_loss\tval_bpb\n1\t3.0\t1.4\n", "is the curve of one run"),
        ("name\tval_bpb\na\tN/A\n", "no number below val_bpb"),
        ("name\tval_bpb\tstatus\na\t1.2\tdiscard\n", "no keep to judge"),
    ],
)
def test_what_is_no_table_of_tries_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(GolfError, match=said):
        keeps_table(read_table(written(tmp_path, text)))


def test_options_of_other_reports_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, LOOP))
    assert main(["report", path, "--html", str(tmp_path / "x.html")]) == 2
    assert "--html is for runs of Golf" in capsys.readouterr().err
    assert main(["report", path, "--column", "bits"]) == 2
    assert "has no column bits" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--column", "val_bpb"]) == 2


TRIES = st.lists(st.tuples(st.floats(0.9, 2.0), st.sampled_from(["keep", "discard", ""])), min_size=1, max_size=20)


@given(TRIES, st.floats(1e-4, 0.1))
def test_keeps_fall_and_fewer_stand_with_all_tries(rows: list[tuple[float, str]], sigma: float) -> None:
    said = {"keep": "kept", "discard": "dropped", "": ""}
    tries = [Try(str(n), n, bpb, decision=said[status]) for n, (bpb, status) in enumerate(rows)]
    table = LoopTable("t", "val_bpb", tries)
    found = keeps(table)
    scores = [one.bpb for one, _ in found if one.bpb is not None]
    assert scores == sorted(set(scores), reverse=True)
    assert [gain for _, gain in found[1:]] == pytest.approx([a - b for a, b in pairwise(scores)])
    if found:
        judged = keeps_table(table, sigma).rows
        assert all(row["alone"] == YES for row in judged if row["all_tries"] == YES)


def test_tries_of_a_table_alone_are_imported_by_its_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, LOOP)
    assert main(["import", str(tmp_path), "--dry-run", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    runs = {run["name"].split("/")[1]: run for run in record["runs"]}
    assert list(runs) == ["a1b2c3d:2", "b2c3d4e:3", "c3d4e5f:4", "d4e5f6a:5", "e5f6a7b:6"]
    assert runs["d4e5f6a:5"]["state"] == "crashed" and "out of memory" in runs["d4e5f6a:5"]["reason"]
    assert runs["a1b2c3d:2"]["figures"]["val_bpb"] == {"value": 1.3745, "source": "results.tsv:2"}
    assert runs["a1b2c3d:2"]["figures"]["total_bytes"]["value"] == 11_960_000
    assert all("a table says so (results.tsv)" in run["faults"][0] for run in record["runs"])


def test_a_table_beside_logs_is_named_and_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, LOOP)
    written(tmp_path, "seed:7\nfinal_int8_zlib_roundtrip_exact val_loss:2.37409373 val_bpb:1.40604891\n", "train.log")
    assert main(["import", str(tmp_path), "--dry-run"]) == 0
    assert "golf report results.tsv judges its keeps" in capsys.readouterr().out
    # So does one above folders with logs.
    (tmp_path / "inner").mkdir()
    (tmp_path / "train.log").rename(tmp_path / "inner" / "train.log")
    assert main(["import", str(tmp_path), "--dry-run", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in record["runs"]] == ["inner/train"]
