"""Between the stages of rounding what is still in floats learns, on any stack, number of ranks, and in its time."""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golf.artifact.container import pack
from golf.artifact.quant.partly import PartlyRounded, rounding_stages
from golf.artifact.quant.policy import dequantize
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import read_result
from golf.settings.config import Config, training_seconds
from golf.training.data.dataset import open_dataset
from golf.training.loop import retraining
from golf.training.loop.calibration import Calibration, calibrate
from golf.training.loop.packing import round_model, round_rest
from golf.training.loop.retraining import FreeTensors, Retraining, retrain, round_and_retrain
from golf.training.model.build import build_model
from golf.training.ranks import Ranks
from tests.support import compose, golf_main, on_ranks, only_run, refusal, tiny_overrides
from tests.training.loop.test_calibration import batches as calibration_batches
from tests.training.loop.test_calibration import collected, trained_weights
from tests.training.loop.test_drift import inputs_of_matrices

COARSE = ["quant.attn.clip_k=4", "quant.mlp.clip_k=4", "quant.embed.clip_k=8"]
FORMS = {
    "trellis": ["quant=trellis_sensitive", *COARSE],
    "by block": ["quant=trellis", *COARSE, "quant.retrain.by=block", "model.tie_embeddings=false"],
    "low rank": ["quant=sdclip_lqer_asym", *COARSE, "quant.lqer.top=4", "quant.lqer.group=16"],
    "loops": ["quant=sdclip_gptq", *COARSE, "model.num_layers=4", "tech=[recurrence,value_residual,swiglu]"],
    "own format": ["quant=gptq_int6", "tech=[binary]", "quant.mlp.format=binary", "quant.mlp.rounding=nearest"],
    "bf16": ["quant=sdclip_gptq", *COARSE, "model.compute_dtype=bf16", "eval.dtype=bf16"],
}
QUICK = ("trellis", "low rank")
forms = pytest.mark.parametrize(
    "form", [*QUICK, *(pytest.param(f, marks=pytest.mark.slow) for f in FORMS if f not in QUICK)]
)


def config(tiny: OwnDataset, *more: str) -> Config:
    small = ["quant.calibration.tokens=256", "quant.small_numel=64", "model.num_layers=2"]
    return compose([*tiny_overrides(tiny), *small, "quant.retrain.steps=4", "quant.tune.batch_tokens=128", *more])


def batches(cfg: Config, ranks: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """The micro-batches of `ranks` in turn, each from a stream of its own."""
    generators = [torch.Generator().manual_seed(100 + rank) for rank in ranks]
    for generator in itertools.cycle(generators):
        ids = torch.randint(cfg.model.vocab_size, (4, 33), generator=generator)
        yield ids[:, :-1], ids[:, 1:]


def calibrated(cfg: Config, weights: dict[str, Tensor], rank: int = 0, ranks: Ranks | None = None) -> Calibration:
    stream = calibration_batches(cfg, rank)
    return collected(cfg, weights, ranks or Ranks(), lambda: next(stream))


def retrained(cfg: Config, weights: dict[str, Tensor], **options: Any) -> Retraining:
    stream = batches(cfg, [0])
    return round_and_retrain(cfg, weights, calibrated(cfg, weights), Ranks(), lambda: next(stream), **options)


def divergence(cfg: Config, weights: dict[str, Tensor], values: dict[str, Tensor], ids: Tensor) -> float:
    """Nats per token in float64, by its definition."""
    likely = []
    for state in (weights, values):
        model = build_model(cfg).double().eval()
        model.load_state_dict(state)
        with torch.no_grad():
            likely.append(model.softcap(model.head(model.hidden(ids))).log_softmax(-1))
    return float((likely[0].exp() * (likely[0] - likely[1])).sum(-1).mean())


@forms
def test_without_time_the_file_is_that_of_rounding_at_once(form: str, tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS[form])
    weights = trained_weights(cfg)
    found = retrained(cfg, weights, seconds_left=0.0)
    assert found.steps == found.tried == 0 and found.missed > 2 and not found.model.coded
    at_once = round_model(cfg, weights, 0, calibrated(cfg, weights).hessians)
    in_parts = round_rest(cfg, found.model, 0)
    assert list(at_once) == list(in_parts)
    files = [pack(coded, cfg.model, cfg.quant, cfg.tech) for coded in (at_once, in_parts)]
    assert files[0] == files[1]


@forms
def test_the_next_stage_sees_the_inputs_of_what_was_rounded_and_retrained(form: str, tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS[form])
    weights = trained_weights(cfg)
    found = retrained(cfg, weights)
    model = found.model
    left = [name for name, tensor in model.left().items() if tensor.ndim == 2 and name in found.model.hessians]
    # The last stage of the own format is rounded without its inputs.
    assert (left or form == "own format") and found.missed == 0 and found.steps == 4 * found.tried
    moved = [name for name in model.left() if not torch.equal(model.weights[name], weights[name])]
    assert set(left) <= set(moved) or found.stages == 0
    for name, coded in model.coded.items():
        assert torch.equal(dequantize(coded)[name], model.weights[name]), name
    if form == "bf16":
        return
    stream = calibration_batches(cfg)
    inputs = inputs_of_matrices(cfg, model.weights, [next(stream)[0] for _ in range(2)])
    for name in left:
        wanted = torch.from_numpy(inputs[name].T @ inputs[name])
        assert (model.hessians[name] - wanted).norm() <= 1e-4 * wanted.norm(), name


def test_the_first_step_goes_against_the_gradient_of_the_divergence(tiny: OwnDataset) -> None:
    """Adam's first step is its rate in every weight, and a quarter of it while the rate rises."""
    cfg = config(tiny, *FORMS["trellis"], "quant.retrain.steps=1", "data.micro_batches=2")
    weights = trained_weights(cfg)
    calls: list[Any] = []
    plain = retraining._train

    def watched(floats: Any, losses: Any, given: Any) -> None:
        before = {name: value.detach().clone() for name, value in floats.changes.items()}
        plain(floats, losses, given)
        if not calls:
            calls.extend(
                [before, {n: v.detach().clone() for n, v in floats.changes.items()}, floats.decoded(), given[0]]
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retraining, "_train", watched)
        retrained(cfg, weights)
    before, after, values, rows = calls
    model, trained = (build_model(cfg).double().eval() for _ in range(2))
    model.load_state_dict(values | before)
    trained.load_state_dict(weights)
    for ids, _ in rows:
        likely, wanted = (m.softcap(m.head(m.hidden(ids))).log_softmax(-1) for m in (model, trained))
        (wanted.exp() * (wanted - likely)).sum(-1).mean().div(2).backward()
    checked = 0
    for name, was in before.items():
        gradient = model.get_parameter(name).grad
        size = float(was.square().mean().sqrt()) if was.ndim == 2 else 0.3 * float(was.abs().mean())
        if gradient is None or size == 0:
            continue
        clear = gradient.abs() > 0.1 * gradient.abs().max()
        step = -0.25 * cfg.quant.retrain.rate * (size + 1e-6) * gradient.sign()
        np.testing.assert_allclose((after[name] - was)[clear], step[clear], rtol=0.02, err_msg=name)
        checked += int(clear.sum())
    assert checked > 500


def long_batches(cfg: Config, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        ids = torch.randint(cfg.model.vocab_size, (32, 33), generator=generator)
        yield ids[:, :-1], ids[:, 1:]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["trellis", "low rank"])
def test_the_stored_model_is_nearer_to_the_trained_one(form: str, tiny: OwnDataset) -> None:
    coarse = ["quant.attn.clip_k=16", "quant.mlp.clip_k=16"]
    cfg = config(tiny, *FORMS[form], *coarse, "quant.retrain.steps=12", "quant.tune.batch_tokens=1024")
    weights, stream = trained_weights(cfg), long_batches(cfg, 1)
    calibration = calibrated(cfg, weights)
    model = round_and_retrain(cfg, weights, calibration, Ranks(), lambda: next(stream)).model
    coded = round_rest(cfg, model, 0), round_model(cfg, weights, 0, calibration.hessians)
    fresh = next(long_batches(cfg, 7))[0]
    found, at_once = (divergence(cfg, weights, dequantize(c), fresh) for c in coded)
    assert found < 0.85 * at_once
    sizes = [len(pack(c, cfg.model, cfg.quant, cfg.tech)) for c in coded]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.03)


def test_steps_that_do_not_help_are_taken_back(tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS["trellis"], "quant.retrain.rate=30")
    weights = trained_weights(cfg)
    found = retrained(cfg, weights)
    assert found.stages == 0 and found.tried > 3 and found.missed == 0
    assert all(torch.equal(found.model.weights[name], weights[name]) for name in found.model.left())


@given(best=st.floats(0.05, 1.9))
def test_changes_that_go_too_far_are_halved_twice_at_most(best: float) -> None:
    """The loss is the distance from `best`, where all changes are 1, so that up to twice `best` they help."""
    weights = {"blocks.0.mlp.fc.weight": torch.full((4, 4), 3.0)}
    floats = FreeTensors(PartlyRounded(compose([]).quant, {}, weights, {}, set()), torch.device("cpu"))
    with torch.no_grad():
        floats.changes["blocks.0.mlp.fc.weight"] += 1

    class Distance:
        def mean(self, floats: FreeTensors, steps: object) -> float:
            return abs(float(floats.decoded()["blocks.0.mlp.fc.weight"].detach().mean()) - 3 - best)

    loss = retraining._halved(floats, Distance(), [], best)  # type: ignore[arg-type]
    change = float(floats.changes["blocks.0.mlp.fc.weight"].detach().mean()) - 3
    assert change == pytest.approx(max((c for c in (1, 0.5) if c < 2 * best), default=0.25), abs=1e-6)
    assert loss == pytest.approx(abs(change - best), abs=1e-6)


def test_stages_follow_the_forward_pass() -> None:
    q, k, out, later = (f"blocks.{b}.attn.{part}.weight" for b, part in ((0, "q"), (0, "k"), (0, "out"), (1, "q")))
    table, head = "bigram.weight", "lm_head.weight"
    uses = [[q, k], [out], [later, "small"], [head]]
    names = ["tok_emb.weight", q, k, out, later, table, head]
    untied = [["tok_emb.weight", table], [q, k], [out], [later], [head]]
    assert rounding_stages(names, uses, "tok_emb.weight", "stage") == untied
    by_block = [["tok_emb.weight", table], [q, k, out], [later], [head]]
    assert rounding_stages(names, uses, "tok_emb.weight", "block") == by_block
    tied = rounding_stages(names[:-1], [*uses[:3], ["tok_emb.weight"]], "tok_emb.weight", "stage")
    assert tied == untied[:-1]
    # An embedding in float16 is no stage.
    assert rounding_stages([q, out], uses, "tok_emb.weight", "stage") == [[q], [out]]


def on_rank(rank: int, world_size: int, cfg: Config, weights: dict[str, Tensor]) -> Any:
    cfg = dataclasses.replace(cfg, launch=dataclasses.replace(cfg.launch, nproc=world_size))
    stream, ranks = batches(cfg, [rank]), Ranks(rank, world_size)
    calibration = calibrated(cfg, weights, rank, ranks)
    found = round_and_retrain(cfg, weights, calibration, ranks, lambda: next(stream))
    file = pack(round_rest(cfg, found.model, 0), cfg.model, cfg.quant, cfg.tech)
    return {"weights": found.model.weights, "hessians": found.model.hessians, "file": file, "at": found.divergence}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["trellis", "low rank", "by block"])
def test_two_ranks_share_the_batches_and_end_equal(form: str, tiny: OwnDataset, tmp_path: Path) -> None:
    cfg = config(tiny, *FORMS[form], "data.micro_batches=2")
    weights = trained_weights(cfg)
    first, second = on_ranks(2, tmp_path, on_rank, cfg, weights)
    assert first["file"] == second["file"] and first["at"] == second["at"]
    for kind in ("weights", "hessians"):
        assert all(torch.equal(tensor, second[kind][name]) for name, tensor in first[kind].items())
    stream, both = batches(cfg, [0, 1]), (next(calibration_batches(cfg, rank)) for rank in (0, 1))
    calibration = collected(cfg, weights, Ranks(), lambda: next(both))
    alone = round_and_retrain(cfg, weights, calibration, Ranks(), lambda: next(stream))
    assert first["at"] == pytest.approx(alone.divergence, rel=0.05)


def test_retraining_counts_as_training_and_bad_combinations_are_refused(tiny: OwnDataset) -> None:
    timed = config(tiny, "quant=trellis_retrained", "budget.train_seconds=100", "quant.tune.reserve_seconds=20")
    assert training_seconds(timed) == 80 - timed.quant.calibration.reserve_seconds
    on = "quant.retrain.steps=1"
    assert "set quant.mlp.rounding=gptq" in refusal("quant=int6_mixed", on)
    assert "leave quant.gptq.drift=false" in refusal("quant=trellis", on, "quant.gptq.drift=true")
    assert "leave quant.prune.fraction=0" in refusal("quant=sdclip_gptq", on, "quant.prune.fraction=0.1")
    assert "set one of them" in refusal("quant=sdclip_gptq", on, "quant.prune.to_fit=true")
    assert "set quant.calibration.source=train" in refusal(
        "quant=trellis", on, "quant.calibration.source=self_generated"
    )
    assert "reserve less" in refusal("quant=trellis", on, "budget.train_seconds=20")


def test_a_finished_run_is_retrained_with_steps_that_fill_the_cap(tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS["low rank"], "quant.retrain.steps=1", "quant.codec=zlib", "quant.codec_level=9")
    weights, dataset = trained_weights(cfg), open_dataset(cfg)
    plain = pack(round_model(cfg, weights, 0, calibrate(weights, cfg, dataset)), cfg.model, cfg.quant, cfg.tech)
    room = int(0.95 * len(plain))
    budget = dataclasses.replace(cfg.budget, artifact_bytes=room + 5000)
    cfg = dataclasses.replace(cfg, budget=budget, quant=dataclasses.replace(cfg.quant, fit="cap"))
    model = retrain(weights, cfg, 5000, dataset)
    file = pack(round_rest(cfg, model, 5000), cfg.model, cfg.quant, cfg.tech)
    assert 0.99 * room <= len(file) <= room


def test_a_cap_without_matrices_in_codes_is_no_crash(tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS["trellis"], "quant.small_numel=1000000", "quant.fit=cap", "budget.artifact_bytes=9000")
    weights = trained_weights(cfg)
    found = retrained(cfg, weights)
    assert found.steps == found.missed == 0
    assert list(round_rest(cfg, found.model, 0)) == list(round_model(cfg, weights, 0, {})) == list(weights)


@pytest.mark.slow
def test_a_run_scores_the_retrained_file(tiny: OwnDataset, runs: Path) -> None:
    """Under a cap that is filled, with tuning behind it, within the clock."""
    small = ["quant=trellis_retrained", "quant.calibration.tokens=512", "quant.small_numel=64", "quant.tune.steps=3"]
    done = golf_main(
        *tiny_overrides(tiny), *small, "quant.fit=cap", "budget.artifact_bytes=90000", "budget.train_seconds=1000"
    )
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "ok" and result.tune_seconds and result.total_bytes and result.total_bytes <= 90_000
    log = (only_run(runs) / "train.log").read_text()
    assert re.search(r"retrained:steps \d+ kept after \d+ of \d+ stages held_out:", log) and "tuned:steps 3" in log
