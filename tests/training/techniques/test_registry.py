"""What every technique has to do, asked of each one in the registry."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from golf.artifact.quant.policy import dequantize, quantize
from golf.errors import GolfError
from golf.idea_folders import ideas
from golf.lab.proofs.scoring_proofs import scoring_breaches
from golf.registry import technique_types
from golf.run.identity import variant_id
from golf.run.progress import Progress
from golf.settings import composition
from golf.settings.config import Config, techniques
from golf.training.loop.switches import StepHooks, switch_names
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT, Block
from golf.training.model.layers import RMSNorm
from golf.training.optim.groups import build_optimizer, group_parameters
from golf.training.techniques.base import CHANGES_WEIGHTS
from tests.support import compatible_stacks, compose, inert_techniques, techniques_of_models

# Ideas have tests of their own, and `golf idea check` takes each through all of this again.
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in ideas() else name for name in techniques_of_models()]
STACKS = compatible_stacks()
SMALL = [
    *("scale=laptop", "model=9l", "model.num_layers=5", "model.model_dim=32", "model.compute_dtype=fp32"),
    "schedule.iterations=50",
    *("optim.muon_dtype=fp32", "quant.small_numel=64", "data.fingerprint=null", "data.vocab_size=64"),
]


def configured(*names: str, more: Sequence[str] = ()) -> Config:
    return compose([*SMALL, f"tech=[{','.join([*names, *needed(*names)])}]", *more])


def needed(*names: str) -> list[str]:
    types: dict[str, Any] = {**technique_types()}
    return sorted({other for name in names for other in types[name].requires} - {*names})


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    ids = torch.randint(64, (3, 25), generator=torch.Generator().manual_seed(seed))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def switched(cfg: Config) -> tuple[str, ...]:
    return switch_names(cfg)


def shaken(model: GPT) -> GPT:
    """Weights moved off their initial values, so that nothing is hidden by a zero."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.1 * torch.randn(param.shape, generator=generator))
    return model


def train_steps(cfg: Config, model: GPT, steps: int) -> None:
    optimizer = build_optimizer(cfg, model)
    for step in range(steps):
        for technique in techniques(cfg):
            technique.before_step(model, Progress(step, 0.9, 0.1))
        optimizer.zero_grad()
        model(*batch(step), switched(cfg)).backward()
        optimizer.step(1.0, 0.9)


@pytest.mark.parametrize("name", NAMES)
def test_composes_and_has_a_source(name: str) -> None:
    cfg = configured(name)
    assert sorted(cfg.tech) == sorted([name, *needed(name)]) and isinstance(cfg.tech[name], technique_types()[name])
    assert technique_types()[name].source


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_in_one_group_and_move(name: str) -> None:
    cfg = configured(name)
    model = build_model(cfg)
    grouped = [id(p) for params in group_parameters(model, techniques(cfg)).values() for p in params]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    start = {k: p.detach().clone() for k, p in model.named_parameters()}
    train_steps(cfg, model, 5)
    assert [k for k, p in model.named_parameters() if torch.equal(p, start[k])] == []


@pytest.mark.parametrize("name", NAMES)
def test_changes_what_it_claims(name: str) -> None:
    cfg = configured(name)
    assert inert_techniques(cfg) == []
    if technique_types()[name].effect == CHANGES_WEIGHTS:
        model = build_model(cfg)
        hooks = StepHooks(cfg, model)
        assert [f"{name} averaged nothing" in sentence for sentence in hooks.idle_averages()] == [True]
        for step in range(1, 61):
            with torch.no_grad():
                model.skip_weights.add_(1.0)
            hooks.after_step(Progress(step, 1.0, 0.0))
        assert hooks.idle_averages() == []
        assert not torch.equal(hooks.final_weights()["skip_weights"], model.skip_weights)


@pytest.mark.parametrize("name", NAMES)
def test_predictions_do_not_see_later_tokens(name: str) -> None:
    cfg = configured(name)
    model = shaken(build_model(cfg)).eval()
    ids, _ = batch()
    changed = ids.clone()
    changed[:, 12] = (changed[:, 12] + 7) % 64
    for active in ((), switched(cfg)):
        assert torch.equal(model.logits(ids, active)[:, :12], model.logits(changed, active)[:, :12])
        assert not torch.equal(model.logits(ids, active)[:, 12:], model.logits(changed, active)[:, 12:])


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_quantization(name: str) -> None:
    cfg = configured(name)
    model = shaken(build_model(cfg))
    other = build_model(cfg)
    other.load_state_dict(dequantize(quantize(model.state_dict(), cfg.quant)))
    assert other(*batch()).item() == pytest.approx(model(*batch()).item(), abs=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_of_a_model_is_apart_from_it(name: str) -> None:
    cfg = configured(name)
    model = shaken(build_model(cfg))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
    assert twin(*batch()).item() != pytest.approx(model(*batch()).item())
    twin(*batch(), switched(cfg)).backward()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_dropped_is_never_selected(name: str) -> None:
    dropped = compose([*SMALL, f"tech=[{','.join([name, *needed(name)])}]", f"drop=[{name}]"])
    never = compose([*SMALL, f"tech=[{','.join(needed(name))}]"])
    assert variant_id(dropped) == variant_id(never) != variant_id(configured(name))
    assert build_model(dropped).state_dict().keys() == build_model(never).state_dict().keys()


@pytest.mark.parametrize("name", NAMES)
def test_what_every_layer_gets_its_repeated_visits_get(name: str) -> None:
    loop = ["tech.recurrence={first:1,last:2,controls:by_visit}"]
    names = sorted({name, "recurrence", *needed(name)})
    if technique_types()[name].by_layer:
        with pytest.raises(GolfError, match=f"{name} for the further visits"):
            compose([*SMALL, f"tech=[{','.join(names)}]", *loop])
        return
    if any("recurrence" in technique_types()[each].conflicts for each in names):
        with pytest.raises(GolfError, match="recurrence exclude each other"):
            compose([*SMALL, f"tech=[{','.join(names)}]", *loop])
        return
    model = build_model(compose([*SMALL, f"tech=[{','.join(names)}]", *loop]))
    layers, visits = ([edits_of(part) for part in parts] for parts in (model.blocks, model.late_controls))
    # The first layer may be left out, as a scale of 1 leaves its norms as they are.
    assert set.intersection(*layers[1:]) <= set.intersection(*visits)


def edits_of(controls: Block) -> set[str]:
    """Return the places at which a block's control vectors, norms or hooks are not those of the plain model."""
    norms = {name: getattr(controls, name) for name in ("attn_norm", "mlp_norm")}
    found = {name for name, norm in norms.items() if norm != RMSNorm()}
    # A layer without attention has no hooks of it.
    if attn := getattr(controls, "attn", None):
        found |= {"qk_norm"} if attn.qk_norm != RMSNorm() else set()
        phases = [*attn.value_hooks.items(), *attn.output_hooks.items()]
        found |= {phase for phase, hooks in phases if hooks}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_all_that_do_not_conflict_go_together(stack: list[str]) -> None:
    cfg = configured(*stack)
    model = build_model(cfg)
    train_steps(cfg, model, 2)
    assert torch.isfinite(model(*batch()))
    reordered = configured(*reversed(stack))
    assert variant_id(cfg) == variant_id(reordered) and list(cfg.tech) == list(reordered.tech)


@pytest.mark.parametrize("name", NAMES)
def test_scores_by_document_are_legal_after_training_across_documents(name: str) -> None:
    try:
        cfg = configured(name, more=["eval.documents=true", "model.within_documents=false"])
    except GolfError as error:
        assert f"mixes tokens across them: set tech.{name}.mask_bos=true, or drop it." in str(error)
    else:
        assert scoring_breaches(cfg) == []


@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_settings_are_not_shared_between_configurations(names: list[str]) -> None:
    one, other = (composition.compose([*SMALL, f"tech=[{','.join(names)}]"]) for _ in range(2))
    for name in names:
        assert one.tech[name] is not other.tech[name]
        assert dataclasses.asdict(one.tech[name]) == dataclasses.asdict(other.tech[name])
