"""`golf gpu-check` without a GPU: its parts on a CPU, and parts whose rows fail, end their process or never answer."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from golf.commands import gpu_check_command, gpu_kernels
from golf.commands.gpu_check_command import PARTS, PRESETS, fill, presets_of
from golf.commands.gpu_kernels import NAMES, check_attention, compare, exact_attention, exact_in_chunks, judged
from golf.commands.gpu_part import Order, answer_of
from golf.commands.gpu_report import Report
from golf.commands.gpu_speed import synthetic_documents
from golf.commands.gpu_steps import Measured
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.training.data.documents import BOS_ID
from golf.training.model.documents import PieceAttention, piece_starts
from golf.training.model.kernels.trial import Rivals
from tests.support import ROOT, compose, tiny_overrides

CPU = torch.device("cpu")
HEADINGS = {"odd": "rows of all kinds"}
ODD_PART = """
import os, signal, sys, time
from pathlib import Path

def note(name):
    with (Path(__file__).parent / "begun").open("a") as file:
        file.write(name + "\\n")

def tasks(order):
    def ends(how):
        def task():
            note(how)
            print("a library prints this to the standard output")
            if how == "raises":
                raise ValueError("no kernel image | is available")
            if how == "dies":
                os.kill(os.getpid(), signal.SIGSEGV)
            if how == "leaves":
                sys.exit("it gave up")
            if how == "hangs":
                time.sleep(600)
            return how != "is wrong", "a detail"
        return task
    for how in ("fine", "raises", "dies", "is wrong", "leaves", "fine, too", "hangs", "behind"):
        yield how, ends(how)
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    (tmp_path / "odd_part.py").write_text(textwrap.dedent(ODD_PART))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    return Order("odd", "odd_part:tasks", device="cpu")


def test_a_row_that_fails_in_any_way_costs_itself_alone(odd: Order, tmp_path: Path) -> None:
    report, seconds = Report(tmp_path / "gpu.md", "a machine", HEADINGS), 2.0
    assert fill(odd.without("hangs", "behind"), report, seconds=60) == []
    while ("odd", "hangs") not in report.rows:
        # On a busy machine its process may not have begun.
        seconds *= 2
        left = fill(odd.without(*(what for _, what in report.rows)), report, seconds)
    assert left == ["behind"]
    rows = {what: row for (_, what), row in report.rows.items()}
    assert {what for what, row in rows.items() if row.passed} == {"fine", "fine, too"}
    assert rows["raises"].detail == "ValueError: no kernel image / is available"
    assert rows["dies"].detail.startswith("its process was ended by SIGSEGV")
    assert rows["leaves"].detail == "its process ended with status 1: it gave up"
    assert rows["hangs"].detail == f"no answer within {seconds:.0f} s for this part"
    text = (tmp_path / "gpu.md").read_text()
    assert "| fine | yes | a detail |" in text and "| is wrong | NO | a detail |" in text


def test_a_second_start_goes_on_and_tries_what_failed_last(odd: Order, tmp_path: Path) -> None:
    file, begun = tmp_path / "gpu.md", tmp_path / "begun"
    report = Report(file, "a machine", HEADINGS)
    fill(odd.without("dies", "leaves", "hangs"), report, seconds=60)
    report.leave_out("odd", ["hangs"])
    assert begun.read_text().split("\n") == ["fine", "raises", "is wrong", "fine, too", "behind", ""]
    assert "Not reached, the same command goes on there: hangs." in file.read_text()
    begun.unlink()
    # What was killed in the middle of a line costs that line.
    with file.with_suffix(".jsonl").open("a") as lines:
        lines.write('{"part": "odd", "wh')
    again = Report(file, "a machine", HEADINGS)
    assert again.passed("odd") == {"fine", "fine, too", "behind"} and again.failed("odd") == {"raises", "is wrong"}
    order = odd.without(*again.passed("odd"), "leaves", "hangs")
    fill(replace(order, postponed=["raises"]), again, seconds=60)
    assert ("odd", "dies") in Report(file, "a machine", HEADINGS).rows
    assert begun.read_text().split() == ["dies", "is", "wrong", "raises"]
    with pytest.raises(GolfError, match=r"is of another check .a machine., and this one is another: name another file"):
        Report(file, "another", HEADINGS)
    notes = tmp_path / "notes.md"
    notes.write_text("somebody's own")
    with pytest.raises(GolfError, match="holds no check of a GPU: name another file"):
        Report(notes, "a machine", HEADINGS)
    assert notes.read_text() == "somebody's own"


def test_a_part_that_cannot_begin_is_a_row(tmp_path: Path) -> None:
    report = Report(None, "a machine", HEADINGS)
    assert fill(Order("odd", "golf.commands.no_such_part:tasks"), report, seconds=60) == []
    assert "No module named 'golf.commands.no_such_part'" in report.rows["odd", "odd"].detail


def test_attention_from_the_definition_is_torchs() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 24, heads, 8, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2))
    ids = torch.zeros(2, 24, dtype=torch.int64)
    ids[0, 5], ids[1, 17] = BOS_ID, BOS_ID
    starts, gradient = piece_starts(ids, 16), torch.randn(2, 24, 4, 8, dtype=torch.float64)
    own, place = starts.view(2, 24), torch.arange(24)
    seen = (own[:, :, None] == own[:, None]) & (place[:, None] >= place)
    queries, keys, values = (t.transpose(1, 2) for t in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2)))
    y = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen[:, None]).transpose(1, 2)
    expected = [y, *torch.autograd.grad(y, (q, k, v), gradient)]
    found = exact_attention([q.detach(), k.detach(), v.detach()], gradient, starts)
    assert all(torch.allclose(own, one.float(), atol=1e-6) for own, one in zip(found, expected, strict=True))


def test_a_definition_in_chunks_is_the_definition() -> None:
    torch.manual_seed(0)
    x, up, down = torch.randn(37, 6), torch.randn(9, 6), torch.randn(6, 9)
    gradient = torch.randn(37, 6)

    def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return F.linear(F.linear(x, up).relu().square(), down)

    leaves = [t.double().requires_grad_() for t in (x, up, down)]
    y = mlp(*leaves)
    expected = [y, *torch.autograd.grad(y, leaves, gradient.double())]
    found = exact_in_chunks(mlp, [x, up, down], gradient)
    assert all(torch.allclose(own, one.float(), atol=1e-5) for own, one in zip(found, expected, strict=True))


@pytest.mark.parametrize("wrong", [None, "y", "dx", "dup"])
def test_a_kernel_with_one_wrong_result_is_noticed(wrong: str | None) -> None:
    torch.manual_seed(0)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, up)
            return x @ up.mT * (1.03 if wrong == "y" else 1)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            (x, up), (dy,) = ctx.saved_tensors, grads
            return dy @ up * (1.03 if wrong == "dx" else 1), dy.mT @ x * (1.03 if wrong == "dup" else 1)

    inputs = [torch.randn(50, 8).bfloat16(), torch.randn(16, 8).bfloat16()]
    passed, detail = compare(Rivals(Scaled.apply, F.linear, inputs), F.linear)
    assert passed == (wrong is None)
    parts = dict(part.split() for part in detail.partition(";")[0].split(", "))
    assert {name for name, distance in parts.items() if float(distance) > 0.02} == ({wrong} if wrong else set())


def test_what_is_no_number_is_not_in_order() -> None:
    assert not judged(NAMES, [torch.full((3,), math.nan)], [torch.ones(3)])[0]


@pytest.mark.parametrize("by_document", [False, True])
def test_torchs_own_attention_has_to_run_and_a_library_need_not(
    monkeypatch: pytest.MonkeyPatch, *, by_document: bool
) -> None:
    batch = ["data.train_batch_tokens=2048", "data.micro_batches=4", "data.train_seq_len=64"]
    cfg = compose(["scale=laptop", "model=4l", *batch])
    passed, detail = check_attention(cfg, "sdpa", CPU, by_document=by_document)
    assert passed and detail.startswith("y ") and "dv " in detail
    passed, detail = check_attention(cfg, "fa3", CPU, by_document=by_document)
    assert passed and detail.startswith("not there: ")
    assert not answer_of(lambda: check_attention(cfg, "varlen", CPU, by_document=True))[0]

    def earlier(attend: PieceAttention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
        return plain(attend, q, k, v, torch.zeros(q.size(0) * q.size(1), dtype=torch.int64), 10**9)

    # A kernel that knows no documents attends across them.
    plain = PieceAttention.__call__
    monkeypatch.setattr(PieceAttention, "__call__", earlier)
    monkeypatch.setattr(gpu_kernels, "DOCUMENT_TOKENS", 16)
    assert check_attention(cfg, "sdpa", CPU, by_document=by_document)[0] != by_document


@pytest.mark.parametrize(
    ("mib", "loss", "problem"),
    [(10_184.0, 6.9, ""), (13_000.0, 6.9, "memory"), (7_000.0, 6.9, "memory"), (None, math.nan, "no number")],
)
def test_memory_is_held_against_the_plan(mib: float | None, loss: float, problem: str) -> None:
    measured = Measured(43.5, 524_288, 44.8, mib, 10_214.0, loss)
    assert problem in measured.problem and bool(problem) == bool(measured.problem)
    assert (
        measured.problem in measured.detail and "43.5 ms a step (planned 44.8), 12,052,598 tokens/s" in measured.detail
    )


def test_documents_of_the_scored_text_have_the_lengths_that_were_asked_for() -> None:
    lengths = torch.tensor([5, 2, 90]).numpy()
    tokens = synthetic_documents(compose(["scale=laptop", "model=4l"]), lengths).validation
    assert [int(i) for i in (tokens == BOS_ID).nonzero()[0]] == [0, 5, 7] and tokens.size == 98


def test_all_presets_are_tried_those_that_tell_most_first() -> None:
    assert presets_of(None)[: len(PRESETS)] == [*PRESETS] and len({*presets_of(None)}) == len(presets_of(None)) > 60
    assert presets_of("none") == [] and presets_of("a,b") == ["a", "b"]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--steps=0", "--steps 0 leaves nothing to time"),
        ("--report=missing/gpu.md", "its folder does not exist"),
        ("--parts=kernels,speed", "--parts does not know speed: choose from kernels, numbers, step"),
    ],
)
def test_a_check_that_could_not_report_does_not_begin(option: str, sentence: str) -> None:
    with pytest.raises(GolfError, match=sentence):
        gpu_check_command.main(["--device=cpu", option])


@pytest.mark.slow
def test_the_first_hour_on_a_gpu_is_rehearsed_on_a_cpu(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    report, preset = tmp_path / "gpu.md", "records/2026-04-27_caseops_lqer_9hp"
    options = ["--device", "cpu", "--steps", "2", "--train-seconds", "1", "--minutes", "10", "--report", str(report)]
    options += ["--presets", f"{preset},no_such_one"]
    # The presets say how many layers they have.
    small = [override for override in tiny_overrides(tiny) if override != "model=4l"]
    small += ["eval.ttt.chunk_tokens=16"]
    command = [sys.executable, "-m", "golf.commands.cli", "doctor", "--gpu", *options, *small]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run side by side
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr  # the preset that is none
    text = report.read_text()
    for part in PARTS:
        assert f"**{part}**" in text and f"**{part}**" in done.stdout
    assert text.count("| NO |") == 1 and "| no_such_one | NO | GolfError: experiment=no_such_one does not" in text
    for what in (
        "sdpa by document, 4 × 32 tokens",
        "fp32 equals the CPU",
        "two ranks sum alike (gloo)",
        "compiles once",
    ):
        assert f"| {what}" in text
    assert "bits per byte" in text and "TFLOP/s with model.attention=" in text and "launches: " in text
    again = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, env=environment)
    assert again.returncode == 1 and report.read_text() == text
