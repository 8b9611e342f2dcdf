"""Functions by which products beside the core act in a run: `golf/products.py` sets them, as the core imports none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from golf.errors import GolfError

if TYPE_CHECKING:
    from golf.artifact.quant.formats import Tensors
    from golf.run.folder import RunFolder
    from golf.settings.config import Config
    from golf.settings.jobs_config import TrackConfig
    from golf.training.data.dataset import Dataset
    from golf.training.ranks import Ranks

UNKNOWN_CODE = "no script is made here, so the bytes of code are unknown, and the cap was held by the artifact alone"
NOT_PROVED = "no proofs are here, so nobody has shown that what is selected acts and that the scores are legal"


@dataclass
class Services:
    """Functions that a run calls. One that is None belongs to a product that is not here."""

    # Lines that say before a run what it will need and give. Raises `GolfError` if no script can be made of it.
    plan_lines: Callable[[Config], list[str]] | None = None
    # Bytes of the script that a submission would contain. Making it takes seconds.
    code_bytes: Callable[[Config], int] | None = None
    # This rank's share of the proofs, before the clock and of the trained weights: a sentence for each failure.
    prove: Callable[[Config, Ranks, Dataset], list[str]] | None = None
    prove_trained: Callable[[Config, Tensors, Dataset, Ranks], list[str]] | None = None
    # How far a run in its folder is from the run that its setting `expect` names; empty if they do not compare.
    about_expected: Callable[[Path], str] | None = None
    # Raises `GolfError` if runs cannot be tracked here; a context in which a run's folder is mirrored to its tracker.
    check_tracker: Callable[[], None] | None = None
    mirrored: Callable[[RunFolder, TrackConfig], AbstractContextManager[None]] | None = None


SERVICES = Services()


def code_bytes(cfg: Config) -> int:
    """Return the bytes of the script that a submission of `cfg` would contain. Raises `GolfError` if none is made here.

    What fills the cap asks for them: a guess would end above the cap or waste a part of it.
    """
    if SERVICES.code_bytes is None:
        raise GolfError("The bytes of code are unknown, because golf/submission, which makes the script, is not here.")
    return SERVICES.code_bytes(cfg)
