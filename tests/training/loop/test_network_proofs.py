"""Proofs before the clock of what a network keeps, reads and loads. Each fault is planted here."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.lab.proofs.parameter_proofs import misplaced_parameters
from golf.lab.proofs.resume_proof import lost_by_loading
from golf.lab.proofs.scoring_proofs import future_leaks
from golf.registry import technique_types
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT, capped_losses
from golf.training.model.layers import RMSNorm
from golf.training.model.slots import set_slot
from golf.training.optim.groups import build_optimizer
from golf.training.techniques.base import CHANGES_STEP, Technique
from tests.support import compose, inert_techniques, with_techniques

# All that a run can select beside nothing else.
ALONE = ["bigram", "smear", "recurrence", "fake_quant", "soft_round", "seeded_maps", "gated_deltanet", "mamba2", "hnet"]


class Planted(Technique):
    """A technique of a test, a function of the network's stream."""

    name = "planted"

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.after_norm["add"].append(self.changed)

    def changed(self, x: Tensor, ids: Tensor) -> Tensor:
        raise NotImplementedError


class NextOfAFarChunk(Planted):
    """The mean of the chunk of 32 tokens that a token is in, off by one: a leak that short rows do not have."""

    def changed(self, x: Tensor, ids: Tensor) -> Tensor:
        chunks = x[:, : x.size(1) // 32 * 32].unflatten(1, (-1, 32)).mean(2)
        mean = torch.cat((chunks.repeat_interleave(32, 1), torch.zeros_like(x[:, : x.size(1) % 32])), 1)
        return x + mean


class NextFarOff(Planted):
    def changed(self, x: Tensor, ids: Tensor) -> Tensor:
        is_far = torch.arange(x.size(1)) > 60
        return torch.where(is_far[None, :, None], x + x.roll(-1, 1), x)


class NextAtTheEnd(Planted):
    def changed(self, x: Tensor, ids: Tensor) -> Tensor:
        return torch.cat((x[:, :100], x[:, 100:] + nn.functional.pad(x[:, 101:], (0, 0, 0, 1))), 1)


class BeforeByFourier(Planted):
    """A causal convolution by Fourier transforms, which rounds early outputs by later inputs."""

    def changed(self, x: Tensor, ids: Tensor) -> Tensor:
        length = 2 * x.size(1)
        decay = 0.9 ** torch.arange(x.size(1), dtype=x.dtype)
        product = torch.fft.rfft(x, length, 1) * torch.fft.rfft(decay, length)[None, :, None]
        return torch.fft.irfft(product, length, 1)[:, : x.size(1)]


def long_rows(cfg: Config) -> Config:
    return dataclasses.replace(cfg, data=dataclasses.replace(cfg.data, train_seq_len=128))


@pytest.mark.parametrize(("kind", "changed"), [(NextOfAFarChunk, 127), (NextFarOff, 127), (NextAtTheEnd, 127)])
def test_a_leak_that_short_rows_do_not_have_is_found_in_the_run_s_own(
    kind: type[Technique], changed: int, tiny_cfg: Config
) -> None:
    (found,) = future_leaks(long_rows(with_techniques(tiny_cfg, kind())))
    assert found.startswith(f"in rows of 128 tokens, token {changed} changes the output at ")


def test_what_reads_the_past_alone_passes(tiny_cfg: Config) -> None:
    assert future_leaks(long_rows(with_techniques(tiny_cfg, BeforeByFourier()))) == []


class Running(Planted):
    """Adds how often it was called."""

    calls = 0

    def changed(self, x: Tensor, ids: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class Narrow(Planted):
    def changed(self, x: Tensor, ids: Tensor) -> Tensor:
        return 1.5 * x.float()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Running, "differs from pass to pass: scores depend on"),
        (Narrow, "turns the stream into torch.float32: return x's dtype"),
    ],
)
def test_a_stream_that_changes_from_pass_to_pass_or_its_dtype(
    kind: type[Technique], said: str, tiny_cfg: Config
) -> None:
    (found,) = future_leaks(long_rows(with_techniques(tiny_cfg, kind())))
    assert said in found


class Counting(nn.Module):
    """A module that changes what it keeps in every pass with gradients."""

    def __init__(self, keep: str):
        super().__init__()
        self.keep, self.passes = keep, 0
        if keep != "attribute":
            self.register_buffer("mean", torch.zeros(()), persistent=keep == "state")

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        if torch.is_grad_enabled() and self.keep == "attribute":
            self.passes += 1
        elif torch.is_grad_enabled():
            self.get_buffer("mean").add_(1.0)
        return x / (2.0 + (self.passes if self.keep == "attribute" else self.get_buffer("mean")))


class Keeps(Technique):
    name = "planted"
    keep = "state"

    def edit_model(self, model: GPT, cfg: Config) -> None:
        counting: Any = Counting(self.keep)
        model.counting = counting
        model.after_norm["add"].append(counting)


@pytest.mark.parametrize("keep", ["state", "buffer", "attribute"])
def test_what_a_pass_changes_has_to_be_in_the_state_dict(keep: str, tiny_cfg: Config) -> None:
    technique = Keeps()
    technique.keep = keep
    found = lost_by_loading(with_techniques(tiny_cfg, technique))
    if keep == "state":
        assert found == []
    else:
        assert "a resume would lose something that a pass changes in the network" in found[0]


class Fades(Technique):
    """Scales the stream by a number that the training takes from `start` to 0."""

    name = "planted"
    persistent = True
    start = 1.0

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.register_buffer("share", torch.tensor(self.start), persistent=self.persistent)
        model.after_norm["add"].append(lambda x, ids: x * (1 + model.get_buffer("share").to(x.dtype)))

    def before_step(self, model: GPT, progress: Progress) -> None:
        model.get_buffer("share").fill_(self.start * (1 - progress.fraction))


def test_scores_have_what_before_step_wrote(tiny_cfg: Config) -> None:
    technique = Fades()
    assert lost_by_loading(with_techniques(tiny_cfg, technique)) == []
    technique.persistent = False
    (found,) = lost_by_loading(with_techniques(tiny_cfg, technique))
    assert "scores would lack something that before_step writes in the network" in found and "persistent=True" in found


def test_what_fades_out_by_the_end_acts_before_it(tiny_cfg: Config) -> None:
    technique = Fades()
    assert inert_techniques(with_techniques(tiny_cfg, technique)) == []
    technique.start = 0.0
    assert inert_techniques(with_techniques(tiny_cfg, technique)) == ["planted changed neither the loss nor a gradient"]


@pytest.mark.parametrize("name", ALONE)
def test_what_golf_brings_passes(name: str, tiny_cfg: Config) -> None:
    cfg = with_techniques(tiny_cfg, technique_types()[name]())
    assert lost_by_loading(cfg) == [] and future_leaks(long_rows(cfg)) == []


class Shares(Technique):
    """Layers with one matrix, which PyTorch gives two names."""

    name = "planted"
    wrap: Any = staticmethod(lambda module: module)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.blocks[1].mlp.fc = self.wrap(model.blocks[0].mlp.fc)  # type: ignore[union-attr]


class Borrowed(nn.Module):
    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = (module,)

    def forward(self, x: Tensor, active: tuple[str, ...]) -> Tensor:
        return self.module[0](x, active)


def test_a_matrix_under_two_names_is_refused_with_what_to_write(tiny_cfg: Config) -> None:
    with pytest.raises(GolfError, match=r"blocks.1.mlp.fc.weight is blocks.0.mlp.fc.weight .* a tuple, \(module,\)"):
        misplaced_parameters(with_techniques(tiny_cfg, Shares()))
    technique = Shares()
    technique.wrap = Borrowed
    cfg = with_techniques(tiny_cfg, technique)
    assert misplaced_parameters(cfg) == [] and inert_techniques(cfg) == []
    assert "blocks.1.mlp.fc.weight" not in build_model(cfg).state_dict()


class Assigns(Technique):
    """A rule that puts another tensor into its state."""

    name = "planted"
    effect = CHANGES_STEP
    in_place = False

    def matrix_rule(self, rule: Any, cfg: Config) -> Any:
        def mean(update: Tensor, grads: Tensor, state: Any) -> Tensor:
            if self.in_place:
                state["mean"].lerp_(update.float(), 0.1)
            else:
                state["mean"] = state["mean"].lerp(update.float(), 0.1)
            return update

        return rule.with_after(mean, mean=lambda shape: shape)


def test_a_rule_that_assigns_its_state_is_refused(tiny_cfg: Config) -> None:
    technique = Assigns()
    cfg = with_techniques(tiny_cfg, technique)
    for technique.in_place in (True, False):
        model = build_model(cfg)
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        optimizer = build_optimizer(cfg, model)
        if technique.in_place:
            optimizer.step()
        else:
            with pytest.raises(GolfError, match="change its tensors in place"):
                optimizer.step()


class Centred(RMSNorm):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x - x.mean(-1, keepdim=True))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("what", ["qk_norm", "losses", "nats"])
def test_the_faster_forms_for_a_cpu_know_what_was_replaced(what: str, dtype: str) -> None:
    """They took the norm for an RMSNorm and the loss for the model's own, so that a run tested the baseline."""
    cfg = compose(["scale=laptop", "model=4l", "model.model_dim=64", f"model.compute_dtype={dtype}"])
    model, plain = build_model(cfg), build_model(cfg)
    # Attention leaves zero where its output matrix starts.
    for one in (model, plain):
        nn.init.ones_(one.blocks[0].attn.proj.weight)  # type: ignore[union-attr, arg-type]
    if what == "qk_norm":
        set_slot(model.blocks[0].attn, "qk_norm", Centred(), "planted")  # type: ignore[arg-type]
    elif what == "losses":
        model.losses = lambda logits, targets, cap: capped_losses(logits, targets, cap) / 2
    else:
        model.nats = lambda logits, targets: capped_losses(logits, targets, 30.0) / 2  # type: ignore
    ids = torch.randint(cfg.model.vocab_size, (2, 33), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        one, other = (m(ids[:, :-1], ids[:, 1:]).item() for m in (model, plain))
    assert one != other if what == "qk_norm" else one == pytest.approx(other / 2, rel=1e-3)


@pytest.mark.parametrize("name", ["multi_token", "focal_loss"])
def test_a_model_in_eval_mode_returns_the_nats_of_the_score(name: str, tiny_cfg: Config) -> None:
    model, ids = build_model(with_techniques(tiny_cfg, technique_types()[name]())), torch.arange(33)[None]
    trained = model(ids[:, :-1], ids[:, 1:])
    nats = model.eval()(ids[:, :-1], ids[:, 1:])
    assert nats == model.token_losses(ids[:, :-1], ids[:, 1:]).mean() != trained
