"""Schedule-free AdamW: gradients are taken between the newest weights and their average, which is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.settings.fields import among, number
from golf.training.model.gpt import GPT
from golf.training.optim.named_state import NamedState
from golf.training.optim.rules import MakeOptimizer
from golf.training.techniques.base import CHANGES_STEP, Averager, Technique, technique

GROUPS = ("embed", "head", "scalar", "matrix")
# Parameter → its average, which the optimizer moves and the score takes.
AVERAGES = WeakTensorKeyDictionary()


class ScheduleFreeAdamW(NamedState):
    """z ← z − γ·(m̂(g) + λ·y), x ← (1 − c)·x + c·z with c = γ² / Σγ², y = (1 − β₁)·z + β₁·x; y are the parameters."""

    def __init__(
        self,
        params: Sequence[nn.Parameter],
        lr: float,
        weight_decay: float,
        *,
        betas: tuple[float, float],
        eps: float,
        rate: float = 1.0,
    ):
        self.params, self.lr, self.weight_decay = list(params), lr, weight_decay
        self.betas, self.eps, self.rate = betas, eps, rate
        self.state: dict[str, list[Tensor]] = {
            # z and x in float32, because a step of 0.1 % is below bf16.
            "newest": [p.detach().float().clone() for p in self.params],
            "average": [p.detach().float().clone() for p in self.params],
            "squares": [torch.zeros_like(p, dtype=torch.float32) for p in self.params],
            # Steps, and the sum of their squared rates, of each parameter. On the CPU, so that no step waits for it.
            "counts": [torch.zeros(2, dtype=torch.float64) for _ in self.params],
        }
        AVERAGES.update(zip(self.params, self.state["average"], strict=True))

    @torch.no_grad()
    def step(self, lr_multiplier: float) -> None:
        """Apply one update at `lr · rate · lr_multiplier`. Parameters without a gradient stay as they are."""
        (beta1, beta2), multiplier = self.betas, self.rate * lr_multiplier
        columns = (self.state[name] for name in ("newest", "average", "squares", "counts"))
        for param, newest, average, squares, counts in zip(self.params, *columns, strict=True):
            if param.grad is None:
                continue
            counts += torch.tensor([1.0, multiplier**2], dtype=torch.float64)
            steps, total = counts.tolist()
            grad = param.grad.float()
            squares.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            update = grad / ((squares / (1 - beta2**steps)).sqrt() + self.eps)
            update.add_(param.float(), alpha=self.weight_decay)
            newest.sub_(update, alpha=self.lr * multiplier)
            average.lerp_(newest, multiplier**2 / total if total else 0.0)
            param.copy_(torch.lerp(newest, average, beta1))


class ScheduleFreeAverage:
    """The averages of a model's parameters, which their optimizer moves. Other tensors are the newest."""

    def __init__(self, model: GPT):
        self.updates = 0
        self.named = {name: p for name, p in model.named_parameters() if p in AVERAGES}

    def update(self, progress: Progress) -> None:
        """Count a step."""
        self.updates += 1

    def weights(self) -> dict[str, Tensor]:
        """Return the averages in the parameters' dtypes."""
        return {name: AVERAGES[param].to(param.dtype) for name, param in self.named.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the count; the averages are in the optimizer's state."""
        return {"updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the count."""
        self.updates = int(state["updates"])


@technique("schedule_free")
@dataclass
class ScheduleFree(Technique):
    """Rates are those of the groups: optim.matrix_lr · `rate`, optim.scalar_lr and so on; no warm-down."""

    source = "arXiv 2405.15682"
    effect = CHANGES_STEP
    conflicts = ("ema", "swa", "lawa", "torch_optimizer")

    # groups of parameters that it trains; the others stay with Golf's own optimizers, and their last weights are scored
    replaces: list[str] = field(default_factory=lambda: [*GROUPS], metadata=among(*GROUPS))
    beta1: float = number(0.9, above=0, below=1)  # share of the average in the weights that gradients are taken at
    beta2: float = number(0.95, at_least=0, below=1)  # of the mean of squares
    eps: float = number(1e-8, above=0)
    rate: float = number(0.1, above=0)  # share of optim.matrix_lr, which is a rate of Muon

    def check(self, cfg: Config) -> None:
        """Refuse an empty list of groups."""
        if not self.replaces:
            raise GolfError(f"tech.schedule_free.replaces is empty: name some of {', '.join(GROUPS)}.")

    def warnings(self, cfg: Config) -> list[str]:
        """Return a sentence about a warm-down, in whose place the average is."""
        if not (cfg.schedule.warmdown_iters or cfg.schedule.warmdown_fraction):
            return []
        return ["schedule_free averages in place of a warm-down: set schedule.warmdown_iters=0, warmdown_fraction=0."]

    def group_optimizers(self, cfg: Config) -> dict[str, MakeOptimizer]:
        """Return the optimizer for each of the groups."""
        make = partial(ScheduleFreeAdamW, betas=(self.beta1, self.beta2), eps=self.eps)
        return {group: partial(make, rate=self.rate) if group == "matrix" else make for group in self.replaces}

    def averager(self, model: GPT) -> Averager:
        """Return the averages that the optimizers keep."""
        return ScheduleFreeAverage(model)
