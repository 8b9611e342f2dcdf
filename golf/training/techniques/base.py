"""What a technique is: settings (a dataclass), claims that can be checked, and the seams it uses.

Seams are few. `edit_model` works once, at construction, so that nothing is dispatched in the compiled graph and what
is not selected leaves no trace. What changes during a run is either a late switch, whose name is then in the `active`
argument of the model (one compiled graph for each value, made before the clock), or a value written into a buffer by
`before_step`. Attributes of a model never change in the timed region: compilers read them as constants.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from torch import Tensor

from golf.registry import TECHNIQUE_TYPES
from golf.run.progress import Progress
from golf.settings.config import Config

if TYPE_CHECKING:
    from golf.training.model.gpt import GPT

CHANGES_GRADIENT, CHANGES_INIT, CHANGES_WEIGHTS, CHANGES_STORAGE = "gradient", "init", "weights", "storage"


class Averager(Protocol):
    """Weights averaged over training, in place of the last ones."""

    updates: int

    def update(self, progress: Progress) -> None:
        """Called after every optimizer step."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """The averaged state dict in the model's own dtypes."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint has to keep."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Inverse of `state_dict`."""
        ...


class Technique:
    """Base of the settings classes. A technique overrides the seams it uses; class attributes declare the rest."""

    name: ClassVar[str]  # set by `technique`
    source: ClassVar[str]  # paper or public pull request
    claim: ClassVar[str] = CHANGES_GRADIENT  # what it changes; the four constants above
    is_switch: ClassVar[bool] = False  # its name is in `active` while it is on
    stage: ClassVar[int] = 0  # techniques of a later stage see the edits of the earlier ones
    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    groups: ClassVar[tuple[tuple[str, str], ...]] = ()  # (own names' pattern, embed | head | matrix | scalar)
    control_names: ClassVar[tuple[str, ...]] = ()  # own parameters that stay float32 when small, by part of the name
    scored_with: ClassVar[bool] = False  # of a switch: whether the model is scored with it on

    def check(self, cfg: Config) -> None:
        """Raise `GolfError` for settings that contradict `cfg`."""

    def warnings(self, cfg: Config) -> list[str]:
        """Sentences about a combination that runs but is unlikely to be meant."""
        return []

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Change `model`, fresh and on the CPU. Random numbers come from the global generator, which is seeded."""

    def group_of(self, name: str) -> str | None:
        """Optimizer group of a parameter of this technique, None for others."""
        return next((group for pattern, group in self.groups if fnmatch(name, pattern)), None)

    def separates_documents(self) -> bool | None:
        """Whether it keeps what it mixes within a document; None if it does not mix the tokens' embeddings."""
        return None

    def is_on(self, progress: Progress) -> bool:
        """Of a switch: whether it is on in the next step. What was on once stays on."""
        return True

    def before_step(self, model: GPT, progress: Progress) -> None:
        """Write what changes with every step into buffers of `model`."""

    def averager(self, model: GPT) -> Averager | None:
        """Averaging over training, from the weights as they are now."""
        return None


Kind = TypeVar("Kind", bound=type[Technique])


def technique(name: str) -> Callable[[Kind], Kind]:
    """Class decorator above `@dataclass`: make the settings class known under `name`."""

    def register(kind: Kind) -> Kind:
        kind.name = name
        TECHNIQUE_TYPES[name] = kind
        return kind

    return register
