"""Counts and alternating rounds of the benchmarks. Measuring itself is tried on tiny models."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
import torch

from bench.machine import Machine, this_machine
from bench.public import linked_data, public_script, public_variables, timed_steps
from bench.rounds import alternate, paired_ratio
from bench.scoring import scoring_rows, with_stride
from bench.shim import Device
from bench.step import step_rows
from bench.table import COLUMNS, Row, as_json, markdown
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan.flops import flops_per_scored_token, flops_per_token
from golf.settings.config import Config
from golf.training.data.shards import open_shard
from golf.training.model.build import shapeless_model
from tests.support import compose, golf_command, tiny_overrides

CPU = torch.device("cpu")
HERE = Machine("a machine", "cpu", 1, 0.0, {"torch": "2", "numpy": "2"}, {})


def test_rounds_alternate_in_direction_and_warm_ups_do_not_count() -> None:
    calls: list[str] = []
    seconds = alternate({name: lambda name=name: calls.append(name) for name in "abc"}, 2, CPU, warm_up=1)  # type: ignore[misc]
    assert "".join(calls) == "cbaabccba"
    assert {name: len(own) for name, own in seconds.items()} == {"a": 2, "b": 2, "c": 2}
    assert paired_ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == 2.0


def test_a_row_has_its_rates() -> None:
    row = Row("step", "x", [0.5, 2.0, 1.0], tokens=1000, flops=2e8, note="n")
    cells = dict(zip(COLUMNS, row.cells(), strict=True))
    assert (cells["ms"], cells["fastest … slowest"]) == ("1,000", "500 … 2,000")
    assert (cells["tokens/s"], cells["GFLOP/s"], cells[""]) == ("1,000", "0.2", "n")
    bare = dict(zip(COLUMNS, Row("start", "y", [0.5]).cells(), strict=True))
    assert [bare[c] for c in ("tokens/s", "GFLOP/s")] == [""] * 2


def test_table_and_json_hold_every_row() -> None:
    rows = [Row("step", "x", [0.5, 0.7, 0.6], 1000), Row("start", "y", [0.25])]
    lines = markdown(HERE, rows).splitlines()
    assert len(lines) == 2 + 1 + 2 + 2 and "600" in lines[-2] and "250" in lines[-1]
    read = json.loads(as_json(HERE, rows, ["bench"]))
    assert [row["median_seconds"] for row in read["rows"]] == [0.6, 0.25]
    assert read["rows"][0]["seconds"] == [0.5, 0.7, 0.6] and read["machine"]["kind"] == "a machine"


def test_steps_of_every_dtype(tiny: OwnDataset, tiny_cfg: Config) -> None:
    (row,) = step_rows(tiny_overrides(tiny), ["off"], ["fp32"], CPU, rounds=2)
    model = shapeless_model(tiny_cfg)
    assert row.tokens == 512 and row.flops == 512 * flops_per_token(tiny_cfg, model).total


def test_flat_and_sliding_score_the_same_tokens(tiny_cfg: Config) -> None:
    cfg = with_stride(tiny_cfg)
    assert cfg.eval.stride == 16  # half of T = 32
    flat, sliding = scoring_rows(tiny_cfg, CPU, rounds=1, sequences=4)
    assert flat.tokens == sliding.tokens == 128 and sliding.flops > flat.flops
    model = shapeless_model(cfg)
    head = 2 * cfg.model.vocab_size * cfg.model.model_dim
    body = flops_per_scored_token(cfg, model) - head
    assert 3 * (body + head) == pytest.approx(flops_per_token(cfg, model).total)
    assert sliding.flops == pytest.approx(128 * (2 * body + head))


def test_a_table_names_its_machine() -> None:
    found = this_machine(CPU)
    assert found.kind and found.device == "cpu" and found.packages["torch"]


def test_public_variables_make_the_same_run(tiny: OwnDataset, tiny_cfg: Config, tmp_path: Path) -> None:
    found = public_variables(tiny_cfg, tmp_path)
    assert (found["TRAIN_BATCH_TOKENS"], found["TRAIN_SEQ_LEN"], found["VOCAB_SIZE"]) == ("512", "32", "320")
    assert (found["MODEL_DIM"], found["NUM_LAYERS"], found["MLP_MULT"], found["TIE_EMBEDDINGS"]) == (
        "32",
        "4",
        "2",
        "1",
    )
    assert found["MAX_WALLCLOCK_SECONDS"] == "0" and found["VAL_LOSS_EVERY"] == "0"
    assert int(found["ITERATIONS"]) > 10_000


def test_public_scripts_find_the_data_under_their_names(tiny_cfg: Config, tmp_path: Path) -> None:
    folder = linked_data(tiny_cfg, tmp_path)
    assert {p.name for p in folder.iterdir()} >= {"fineweb_train_000000.bin", "fineweb_val_000000.bin"}
    assert open_shard(folder / "fineweb_val_000000.bin").size > 0


def test_a_folder_without_a_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GolfError, match=r"there is no train_gpt\.py"):
        public_script(tmp_path)


def test_a_gpu_is_the_cpu_for_a_public_script() -> None:
    assert Device("cuda", 0) == Device("cuda:1") == Device(type="cuda") == CPU  # type: ignore[call-arg]
    assert Device("meta") == torch.device("meta")  # type: ignore[call-arg]
    assert isinstance(CPU, Device)


def test_unknown_parts_are_refused(tmp_path: Path) -> None:
    done = golf_command("bench", "--parts", "step,stop", "--json", str(tmp_path / "b.json"))
    assert done.returncode == 2 and "--parts does not know stop" in done.stderr


PUBLIC = """
import os, subprocess, torch
from torch import nn
steps = int(os.environ["ITERATIONS"])
assert os.environ["MODEL_DIM"] == "32" and torch.cuda.is_available()
subprocess.run(["nvidia-smi"], check=False)
device = torch.device("cuda", 0)
model = torch.compile(nn.Linear(4, 4).to(device).bfloat16(), fullgraph=True)
optimizer = torch.optim.Adam(model.parameters(), fused=True)
for step in range(1, steps + 1):
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16, enabled=True):
        loss = model(torch.randn(2, 4, device=device).pin_memory().cuda()).square().mean()
    assert loss.dtype == torch.float32
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    print(f"step:{step}/{steps} train_loss:{loss.item():.4f} train_time:1ms step_avg:1.00ms")
"""


@pytest.mark.slow
def test_a_script_for_gpus_alternates_with_golf(tiny: OwnDataset, tmp_path: Path) -> None:
    (tmp_path / "train_gpt.py").write_text(PUBLIC)
    out = tmp_path / "bench.json"
    arguments = ["--experiments", "none", "--parts", "none", "--compile", "off", "--dtypes", "fp32", "--rounds", "2"]
    arguments += ["--json", str(out)]
    done = golf_command("bench", *arguments, "--against", str(tmp_path), *tiny_overrides(tiny))
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert [row["what"].partition(":")[0] for row in rows] == ["public", "golf"]
    assert "× the public script's tokens/s" in rows[1]["note"]


@pytest.mark.slow
def test_a_script_that_fails_is_quoted(tiny_cfg: Config, tmp_path: Path) -> None:
    path = tmp_path / "train_gpt.py"
    path.write_text("raise SystemExit('no such thing here')")
    cfg = dataclasses.replace(tiny_cfg, launch=dataclasses.replace(tiny_cfg.launch, compile="off"))
    # Those of earlier tests, such as a compiler's, may live on.
    before = children()
    with pytest.raises(GolfError, match="no such thing here"), timed_steps(path, cfg, "train"):
        pass
    assert children() == before, "a subprocess is left behind"


def children() -> list[str]:
    """Return the subprocesses of this process (Linux)."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


PARTS = ("step", "score")


@pytest.mark.slow
def test_all_parts_in_one_table(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    options = ["--experiments", "none", "--compile", "off", "--rounds", "1", "--sequences", "4", "--json", str(out)]
    done = golf_command("bench", *options, "--parts", ",".join(PARTS), *tiny_overrides(tiny))
    assert done.returncode == 0, done.stderr
    parts = [row["part"] for row in json.loads(out.read_text())["rows"]]
    assert list(dict.fromkeys(parts)) == [*PARTS]
    assert compose(tiny_overrides(tiny)).name in done.stdout
