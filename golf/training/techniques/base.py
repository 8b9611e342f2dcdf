"""The base of a technique: settings (a dataclass), an effect that is checked, and the seams that it overrides.

`edit_model` runs once, at construction, so that the compiled graph dispatches nothing and a technique that is not
selected leaves no trace. Two things may change during a run. A late switch is a name in the `active` argument of the
model; one graph per value is compiled before the clock. A number that changes with every step is written into a
buffer by `before_step`. Attributes of a model never change in the timed region: compilers read them as constants.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from torch import Tensor

from golf.errors import GolfError
from golf.registry import CHANGES_LOSS as CHANGES_LOSS
from golf.registry import CHANGES_ORDER as CHANGES_ORDER
from golf.registry import CHANGES_SCORE as CHANGES_SCORE
from golf.registry import CHANGES_STEP as CHANGES_STEP
from golf.registry import TECHNIQUE_TYPES, Variable
from golf.run.progress import Progress
from golf.settings.config import Config

if TYPE_CHECKING:
    from golf.artifact.quant.formats import OwnFormat
    from golf.training.data.orders import DataOrder
    from golf.training.model.gpt import GPT
    from golf.training.model.objective import Term, Weigh
    from golf.training.model.route import Routes
    from golf.training.optim.rules import MakeOptimizer, MatrixRule
    from golf.training.scoring.predictor import Predictor

CHANGES_GRADIENT, CHANGES_INIT, CHANGES_WEIGHTS, CHANGES_STORAGE = "gradient", "init", "weights", "storage"
# Phases of construction: modules and hooks, initial values, how matrices are kept, edits of weights, copies of models.
PARTS, INITIAL_VALUES, STORAGE, WEIGHTS, COPIES = range(5)

GROUPS = "embed", "head", "matrix", "scalar"
# Seams that are called with one effect only.
OF_STEPS = dict.fromkeys(("matrix_rule", "group_optimizers"), CHANGES_STEP)
OF_LOSS = dict.fromkeys(("training_terms", "token_weights"), CHANGES_LOSS)
SEAMS = {**OF_STEPS, **OF_LOSS, "data_order": CHANGES_ORDER, "predictor": CHANGES_SCORE}
# Seams that have to return something. Without it a run fails far from the technique.
RETURNING = SEAMS.keys() - {"token_weights"} | {"replaced_modules", "switch_names", "names_on"}


class Averager(Protocol):
    """Weights averaged over training, which replace the last ones."""

    updates: int

    def update(self, progress: Progress) -> None:
        """Take in the weights after an optimizer step."""

    def weights(self) -> dict[str, Tensor]:
        """Return the averaged state dict in the model's own dtypes."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint keeps."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""


class Technique:
    """Base of the settings classes. A technique overrides the seams that it uses; class attributes declare the rest."""

    name: ClassVar[str]  # set by `technique`
    source: ClassVar[str]  # paper or public pull request
    effect: ClassVar[str] = CHANGES_GRADIENT  # one of these four or of golf.registry's; every run checks it
    is_switch: ClassVar[bool] = False  # True: its name, or `switch_names`, is in `active` while it is on
    phase: ClassVar[int] = PARTS  # techniques of a later phase see the edits of the earlier ones
    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    # True: further visits of a layer need its hooks and parameters, so tech.recurrence.controls=by_visit is refused
    by_layer: ClassVar[bool] = False
    variables: ClassVar[tuple[Variable, ...]] = ()  # the public scripts' environment variables that mean it
    groups: ClassVar[tuple[tuple[str, str], ...]] = ()  # (own names' pattern, embed | head | matrix | scalar)
    control_names: ClassVar[tuple[str, ...]] = ()  # own names' patterns: parameters that stay float32 when small
    scored_with: ClassVar[bool] = False  # True for a switch that is on when the model is scored

    def check(self, cfg: Config) -> None:
        """Raise `GolfError` for settings that contradict `cfg`."""

    def warnings(self, cfg: Config) -> list[str]:
        """Return sentences about a combination that runs but is unlikely to be meant."""
        return []

    def routes(self, cfg: Config) -> Routes | None:
        """Return the order of the blocks without late switches and with each; None if this technique changes none."""
        return None

    def replaced_modules(self, cfg: Config) -> tuple[str, ...]:
        """Return the paths of modules that it replaces on purpose, with whatever other techniques have set in them."""
        return ()

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Edit `model`, which is fresh and on the CPU. Random numbers come from the seeded global generator."""

    def group_of(self, name: str) -> str | None:
        """Return the optimizer group of a parameter of this technique, None for other parameters."""
        return next((group for pattern, group in self.groups if fnmatch(name, pattern)), None)

    def acts_after(self) -> int:
        """Return up to how many tokens of a document or row it changes nothing, so that proofs take longer ones."""
        return 0

    def separates_documents(self) -> bool | None:
        """Tell whether it mixes tokens' embeddings within documents only. None: it mixes none."""
        return None

    def switch_names(self) -> tuple[str, ...]:
        """Return the names of its late switches. If there are several, each goes on after those before it."""
        return (self.name,) if self.is_switch else ()

    def names_on(self, progress: Progress) -> tuple[str, ...]:
        """Return the switches that are on in the next step. A switch that was on once stays on."""
        return self.switch_names() if self.is_on(progress) else ()

    def is_on(self, progress: Progress) -> bool:
        """Tell whether the only switch is on in the next step."""
        return True

    def at_switch(self, model: GPT, names: tuple[str, ...]) -> None:
        """Change weights of `model` once, before the first step with the late switches `names`, which were off."""

    def before_step(self, model: GPT, progress: Progress) -> None:
        """Write the values of this step into buffers of `model`."""

    def readings(self, model: GPT) -> Mapping[str, float | Tensor]:
        """Return numbers of its own by name, such as a decay or a gate's mean. They are read at each logged step."""
        return {}

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return `rule`, what becomes of the gradients of matrices, with this technique's part added."""
        return rule

    def group_optimizers(self, cfg: Config) -> dict[str, MakeOptimizer]:
        """Return makers of optimizers in place of Golf's, by group: embed, head, scalar or matrix."""
        return {}

    def training_terms(self, cfg: Config) -> list[Term]:
        """Return terms that training adds to the mean of the nats. Scores never see them."""
        return []

    def token_weights(self, cfg: Config) -> Weigh | None:
        """Return the function that weighs the tokens of the training loss, None for equal weights."""
        return None

    def data_order(self, cfg: Config) -> DataOrder:
        """Return the function that puts the training text of a pass in order."""
        raise NotImplementedError

    def predictor(self, cfg: Config) -> Predictor:
        """Return a new predictor that is mixed into the scores of sliding windows."""
        raise NotImplementedError

    def number_format(self) -> OwnFormat | None:
        """Return the number format called as this technique, which `quant.*.format` may name, or None."""
        return None

    def averager(self, model: GPT) -> Averager | None:
        """Return an average over training that starts from the current weights, or None."""
        return None


Kind = TypeVar("Kind", bound=type[Technique])


def refuse_unused_seams(kind: type[Technique]) -> None:
    """Raise `GolfError` for a misspelt seam, one that the effect leaves out or lacks, and wrong pairs in `groups`."""
    for seam, effect in SEAMS.items():
        is_own = getattr(kind, seam) is not getattr(Technique, seam)
        if is_own and kind.effect != effect:
            raise GolfError(f"{seam} acts with effect = CHANGES_{effect.upper()} alone: set it, or make two ideas")
        if not is_own and kind.effect == effect and effect in (CHANGES_ORDER, CHANGES_SCORE):
            raise GolfError(f"effect = CHANGES_{effect.upper()} needs the method {seam}: write it")
    if kind.effect in (CHANGES_STEP, CHANGES_ORDER) and kind.edit_model is not Technique.edit_model:
        raise GolfError(f"edit_model is not scored with effect = CHANGES_{kind.effect.upper()}: make two ideas")
    settings = getattr(kind, "__dataclass_fields__", {}).keys()
    for own in [name for name in vars(kind).keys() - settings if name[0] != "_" and not hasattr(Technique, name)]:
        if close := difflib.get_close_matches(own, dir(Technique), n=1, cutoff=0.92):
            raise GolfError(f"{own} is no seam: did you mean {close[0]}? Begin the name of your own method with _")
    if any(len(pair) != 2 or pair[1] not in GROUPS for pair in kind.groups):
        raise GolfError(f"groups has to be pairs of a pattern and one of {', '.join(GROUPS)}")


def returning(seam: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return `seam` of the technique `name`, which raises `GolfError` where it returns nothing."""

    @functools.wraps(seam)
    def checked(*arguments: Any) -> Any:
        value = seam(*arguments)
        if value is None:
            raise GolfError(f"{seam.__name__} of the technique {name} returns nothing: end it with return and a value.")
        return value

    return checked


def technique(name: str) -> Callable[[Kind], Kind]:
    """Register the settings class under `name`. The decorator stands above `@dataclass`."""

    def register(kind: Kind) -> Kind:
        kind.name = name
        refuse_unused_seams(kind)
        for seam in RETURNING & vars(kind).keys():
            setattr(kind, seam, returning(getattr(kind, seam), name))
        # The settings' schema looks techniques up by name, so that it imports none of them.
        TECHNIQUE_TYPES[name] = kind
        return kind

    return register
