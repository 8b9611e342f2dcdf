"""Distillation: training follows a teacher's distribution, an earlier artifact's or that of the run's own average."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from golf.artifact.container import load_weights_only
from golf.errors import GolfError
from golf.paths import resolve
from golf.run.progress import Progress
from golf.settings.config import Config, scored_config
from golf.settings.fields import number
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.objective import Pass, Term
from golf.training.techniques.base import CHANGES_LOSS, COPIES, Technique, technique


def divergence(teacher: Tensor, student: Tensor, temperature: float, top: int) -> Tensor:
    """Return τ² · KL(softmax(teacher / τ) ‖ softmax(student / τ)) for each row of logits `[..., V]`, `[...]` float32.

    With `top` above 0 the teacher's distribution is that of its largest `top` logits alone, and sums to 1.
    """
    logs = (student.float() / temperature).log_softmax(dim=-1)
    wanted = teacher.float() / temperature
    if top:
        wanted, places = wanted.topk(top, dim=-1)
        logs = logs.gather(-1, places)
    wanted = wanted.log_softmax(dim=-1)
    return temperature**2 * (wanted.exp() * (wanted - logs)).sum(dim=-1)


class Teacher(nn.Module):
    """A model without parameters: its weights are buffers that no optimizer, artifact or copy of gradients sees."""

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model
        for module in model.modules():
            for name, weight in list(module._parameters.items()):
                del module._parameters[name]
                # In no checkpoint: they follow from the artifact, or from the averages.
                module.register_buffer(name, None if weight is None else weight.detach().clone(), persistent=False)

    def forward(self, ids: Tensor, active: tuple[str, ...]) -> Tensor:
        """Return the capped logits `[B, T, V]` of `ids` `[B, T]`, with the student's late switches `active`."""
        with torch.no_grad():
            return self.model.logits(ids, active)


class ArtifactTeacher(Teacher):
    """A teacher that has ended its training, so all its late switches are on."""

    def forward(self, ids: Tensor, active: tuple[str, ...]) -> Tensor:
        """Return the capped logits `[B, T, V]` of `ids` `[B, T]`; the student's switches change nothing."""
        return super().forward(ids, self.model.active_in_scoring)


class AverageTeacher(Teacher):
    """A teacher whose weights are an exponential moving average of the student's, kept in float32 in checkpoints."""

    def __init__(self, model: GPT):
        model = copy.deepcopy(model)
        # Another loss may train modules there that a teacher has no use for.
        model.training_only.clear()
        names = [name for name, _ in model.named_parameters()]
        super().__init__(model)
        self.names = names
        for i, name in enumerate(names):
            # Names of buffers hold no dots.
            self.register_buffer(f"average{i}", model.get_buffer(name).float().clone())

    @torch.no_grad()
    def follow(self, student: GPT, decay: float, *, first: bool) -> None:
        """Move the averages towards the weights of `student`, or onto them at the first step, and teach with them."""
        for i, name in enumerate(self.names):
            average = self.get_buffer(f"average{i}")
            average.lerp_(student.get_parameter(name).to(average.dtype), 1.0 if first else 1 - decay)
            self.model.get_buffer(name).copy_(average)


def taught(done: Pass, *, share: float, temperature: float, top: int) -> Tensor:
    """Return share · (the mean divergence from the teacher − the mean of the nats), a scalar."""
    teacher = done.model.training_only["distillation"]
    assert isinstance(teacher, Teacher)
    distance = divergence(teacher(done.ids, done.active), done.logits(), temperature, top).mean()
    return share * (distance - done.nats.mean())


def read_teacher(path: str, cfg: Config) -> GPT:
    """Return the model of the artifact at `path`. Raises `GolfError` if it is not of the model of `cfg`."""
    model, weights = build_model(scored_config(cfg)), load_weights_only(resolve(path), cfg.quant, cfg.tech)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise GolfError(
            f"The teacher {path} is of another model than this run's: name one of the same model."
        ) from error
    return model.eval()


@technique("distillation")
@dataclass
class Distillation(Technique):
    """The divergence from the teacher takes the place of a share of the nats."""

    source = "arXiv 1503.02531, PR #1029 (artifact, top 32), PR #1922 (own average)"
    effect = CHANGES_LOSS
    phase = COPIES

    teacher: str = ""  # artifact of an earlier run with the same model; empty = the run's own average
    share: float = number(0.5, above=0, at_most=1)  # of the loss that the divergence takes
    temperature: float = number(1.0, above=0)  # that divides the logits of both
    top: int = number(32, at_least=0)  # largest logits of the teacher that count; 0 = all
    decay: float = number(0.99, at_least=0, below=1)  # of the run's own average

    def check(self, cfg: Config) -> None:
        """Refuse more logits than there are."""
        if self.top > cfg.model.vocab_size:
            raise GolfError(f"tech.distillation.top={self.top} is above the vocabulary of {cfg.model.vocab_size}.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the teacher."""
        if not self.teacher:
            model.training_only["distillation"] = AverageTeacher(model)
        # Plans need no numbers, so that a model of the same shape stands for the artifact's.
        elif model.tok_emb.weight.is_meta:
            model.training_only["distillation"] = ArtifactTeacher(copy.deepcopy(model))
        else:
            model.training_only["distillation"] = ArtifactTeacher(read_teacher(self.teacher, cfg))

    def before_step(self, model: GPT, progress: Progress) -> None:
        """Move the run's average."""
        teacher = model.training_only["distillation"]
        if isinstance(teacher, AverageTeacher):
            teacher.follow(model, self.decay, first=progress.step == 0)

    def training_terms(self, cfg: Config) -> list[Term]:
        """Return the term."""
        return [partial(taught, share=self.share, temperature=self.temperature, top=self.top)]
