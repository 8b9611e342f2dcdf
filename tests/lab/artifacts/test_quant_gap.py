"""Gaps of one checkpoint under many formats: like for like, with an error that matches its definition."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from golf.artifact.codec.codecs import NEEDS_PACKAGE
from golf.artifact.quant.policy import dequantize, quantize
from golf.errors import GolfError
from golf.lab.artifacts import quant_gap
from golf.lab.artifacts.quant_gap import QuantGap, paired_gap, print_gaps, quant_gaps
from golf.registry import technique_types
from golf.run.folder import RunFolder
from golf.settings.config import Config, QuantConfig, TensorQuant, eval_seq_len
from golf.training.data.dataset import open_dataset
from golf.training.model.build import build_model
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer
from tests.support import FinishedRun


@pytest.fixture
def weights(tiny_cfg: Config) -> dict[str, torch.Tensor]:
    """Not trained, but with an output: the projections of a fresh model are zero."""
    torch.manual_seed(0)
    state = build_model(tiny_cfg).state_dict()
    return {name: 0.3 * torch.randn_like(t) if t.ndim == 2 else t for name, t in state.items()}


def stored_as(cfg: Config, quants: dict[str, QuantConfig]) -> dict[str, Config]:
    return {name: dataclasses.replace(cfg, quant=quant) for name, quant in quants.items()}


def test_gaps_are_those_of_two_scores(tiny_cfg: Config, weights: dict[str, torch.Tensor]) -> None:
    int4 = TensorQuant("int4")
    quants = {"int8": tiny_cfg.quant, "int4": QuantConfig(embed=int4, attn=int4, mlp=int4, small_numel=256)}
    found = {gap.name: gap for gap in quant_gaps(tiny_cfg, weights, stored_as(tiny_cfg, quants), tokens=0)}
    scorer = Scorer(tiny_cfg, open_dataset(tiny_cfg), Ranks())
    before = scorer(weights)
    for name, quant in quants.items():
        after = scorer(dequantize(quantize(weights, quant)))
        assert found[name].before_bpb == pytest.approx(before.val_bpb, abs=1e-9)
        assert found[name].gap_bpb == pytest.approx(after.val_bpb - before.val_bpb, abs=1e-7)
        assert found[name].tokens == before.tokens
    assert found["int4"].gap_bpb > 5 * abs(found["int8"].gap_bpb)
    assert found["int4"].artifact_bytes < found["int8"].artifact_bytes


def test_the_divergence_is_that_of_all_next_tokens(tiny_cfg: Config, weights: dict[str, torch.Tensor]) -> None:
    int4 = TensorQuant("int4")
    quant = QuantConfig(embed=int4, attn=int4, mlp=int4, small_numel=256)
    (gap,) = quant_gaps(tiny_cfg, weights, stored_as(tiny_cfg, {"int4": quant}), tokens=0)
    dataset = open_dataset(tiny_cfg)
    length = eval_seq_len(tiny_cfg)
    rows = dataset.validation[: (dataset.validation.size - 1) // length * length].astype("int64").reshape(-1, length)
    before, after = build_model(tiny_cfg).double(), build_model(tiny_cfg).double()
    before.load_state_dict(weights)
    after.load_state_dict(dequantize(quantize(weights, quant)))
    nats = 0.0
    with torch.no_grad():
        for row in torch.from_numpy(rows):
            p, q = (m.softcap(m.head(m.hidden(row[None]))).softmax(-1) for m in (before, after))
            nats += float((p * (p.log() - q.log())).sum())
    score = Scorer(tiny_cfg, dataset, Ranks())(weights)
    bits_per_token, tokens_per_byte = nats / rows.size / math.log(2), score.tokens / score.bytes
    assert gap.kl_bpb == pytest.approx(bits_per_token * tokens_per_byte, rel=1e-4)
    assert 0 < gap.kl_standard_error < gap.gap_standard_error


def test_what_is_not_changed_has_no_gap(tiny_cfg: Config, weights: dict[str, torch.Tensor]) -> None:
    exact = {name: t.half().float() for name, t in weights.items()}
    everything = QuantConfig(small_numel=1 << 30)
    (gap,) = quant_gaps(tiny_cfg, exact, stored_as(tiny_cfg, {"fp16": everything}), tokens=0)
    assert gap.gap_bpb == 0 and gap.gap_standard_error == 0 and gap.kl_bpb == gap.kl_standard_error == 0


def test_fewer_tokens_are_scored_in_whole_batches(tiny_cfg: Config, weights: dict[str, torch.Tensor]) -> None:
    batch = tiny_cfg.eval.val_batch_tokens // tiny_cfg.data.micro_batches
    (gap,) = quant_gaps(tiny_cfg, weights, {"int8": tiny_cfg}, tokens=batch + 1)
    assert gap.tokens == 2 * batch


def test_a_run_in_another_arithmetic_is_scored_in_float32(tiny_cfg: Config, weights: dict[str, torch.Tensor]) -> None:
    other = dataclasses.replace(
        tiny_cfg,
        eval=dataclasses.replace(tiny_cfg.eval, dtype="bf16"),
        launch=dataclasses.replace(tiny_cfg.launch, nproc=2, compile="full"),
    )
    (a,), (b,) = (quant_gaps(cfg, weights, {"int8": cfg}) for cfg in (tiny_cfg, other))
    assert a.after_bpb == b.after_bpb


def test_standard_error_by_its_definition() -> None:
    before, after = np.array([10.0, 20.0, 30.0]), np.array([11.0, 20.0, 32.0])
    gap, error = paired_gap(before, after, byte_count=100)
    differences = [(b - a) / math.log(2) for a, b in zip(before, after, strict=True)]
    mean = sum(differences) / 3
    variance = sum((d - mean) ** 2 for d in differences) / 2
    assert gap == pytest.approx(sum(differences) / 100)
    assert error == pytest.approx(3 * math.sqrt(variance / 3) / 100)  # n times the standard error of a mean
    assert math.isnan(paired_gap(before[:1], after[:1], 100)[1])


def test_a_gap_of_one_batch_has_an_unknown_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_gaps(iter([QuantGap("int8", 2.0, 2.5, 0.5, math.nan, 0.4, math.nan, 1000, 0.1, 32)]))
    assert "| +0.50000 ± unknown | 0.40000 ± unknown | 1,000 |" in capsys.readouterr().out


def test_a_format_that_no_matrix_has_is_said(
    tiny_cfg: Config, weights: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    int4 = TensorQuant("int4")
    quants = {
        "small": QuantConfig(embed=int4, attn=int4, mlp=TensorQuant("fp16"), small_numel=1 << 30),
        "large": QuantConfig(embed=int4, attn=int4, mlp=int4, small_numel=256),
        # The embedding is the only matrix that is large enough.
        "mixed": QuantConfig(attn=int4, mlp=int4, small_numel=weights["tok_emb.weight"].numel() - 1),
    }
    gaps = list(quant_gaps(tiny_cfg, weights, stored_as(tiny_cfg, quants), tokens=0))
    assert [gap.without for gap in gaps] == [("int4",), (), ("int4",)]
    print_gaps(iter(gaps))
    said = capsys.readouterr().out
    assert "| small (no matrix has int4 here) | " in said and "| large | " in said and "stay fp16" in said


def test_presets_without_their_package_are_left_out_and_named(
    finished_run: FinishedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quant_gap, "presets", lambda: ["int8", "int6_context"])
    monkeypatch.setitem(NEEDS_PACKAGE, "context", "no_such_package")
    folder = RunFolder(finished_run.folder)
    assert [gap.name for gap in quant_gap.gaps_of_run(folder, tokens=1)] == ["int8"]
    assert "warning: int6_context is left out: codec context needs" in capsys.readouterr().err
    with pytest.raises(GolfError, match="pip install no_such_package"):
        quant_gap.gaps_of_run(folder, ["int8", "int6_context"])


def test_formats_of_techniques_are_measured_whether_the_run_has_them_or_not(finished_run: FinishedRun) -> None:
    folder = RunFolder(finished_run.folder)
    small = "int8 quant.small_numel=64"
    choices = [small, f"{small} quant.attn.format=binary +tech=binary"]
    whole, coarse = quant_gap.gaps_of_run(folder, choices, tokens=1)
    assert coarse.artifact_bytes < whole.artifact_bytes and coarse.gap_bpb > whole.gap_bpb
    # A format of another choice leaves no byte in the header.
    (alone,) = quant_gap.gaps_of_run(folder, choices[:1], tokens=1)
    assert alone.artifact_bytes == whole.artifact_bytes
    cfg = folder.read_config()
    cfg.tech = {"binary": technique_types()["binary"]()}
    stored = quant_gap.stored_config("int8 quant.by_name={blocks*:binary}", cfg)
    assert stored.quant.by_name == {"blocks*": "binary"} and [*stored.tech] == ["binary"]
    # What had to be selected before may still be, and what gives no format is none of the artifact's.
    cfg.tech["binary"].group = 64
    again = quant_gap.stored_config("int8 quant.attn.format=binary +tech=[binary,xsa]", cfg)
    assert again.tech == cfg.tech
    with pytest.raises(GolfError, match="has settings of tech binary, which stay"):
        quant_gap.stored_config("int8 quant.attn.format=binary tech.binary.group=32", cfg)
    with pytest.raises(GolfError, match=r"budget\.artifact_bytes=9 sets neither quant nor tech"):
        quant_gap.stored_config("int8 quant.fit=cap budget.artifact_bytes=9", cfg)
    # A preset that does not name the run's format is no mistake.
    assert quant_gap.stored_config("int8", cfg).quant.attn.format == "int8"
