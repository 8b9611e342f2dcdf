"""The products that stand beside the core, and what each does for a run: the core's only way to them.

Everything is imported when it is called, so that a process pays for what it uses.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from golf.paths import ROOT
from golf.training.services import SERVICES

if TYPE_CHECKING:
    from golf.artifact.quant.formats import Tensors
    from golf.run.folder import RunFolder
    from golf.settings.config import Config
    from golf.settings.jobs_config import TrackConfig
    from golf.training.data.dataset import Dataset
    from golf.training.ranks import Ranks


def _plan_lines(cfg: Config) -> list[str]:
    from golf.lab.plan.lines import lines_before_run

    return lines_before_run(cfg)


def _code_bytes(cfg: Config) -> int:
    from golf.submission.code_bytes import code_bytes

    return code_bytes(cfg)


def _prove(cfg: Config, ranks: Ranks, dataset: Dataset) -> list[str]:
    from golf.lab.proofs.run_proofs import failed_proofs

    return failed_proofs(cfg, ranks, dataset)


def _prove_trained(cfg: Config, weights: Tensors, dataset: Dataset, ranks: Ranks) -> list[str]:
    from golf.lab.proofs.scoring_proofs import trained_breaches

    return trained_breaches(cfg, weights, dataset, ranks.rank, ranks.world_size)


def _about_expected(folder: Path) -> str:
    from golf.lab.report.expectation import about_expected

    try:
        return about_expected(folder)
    # A remark may not end a run, whatever the reference's files are.
    except Exception as error:
        return f"nothing, because comparing failed ({type(error).__name__}: {error})"


def _check_tracker() -> None:
    from golf.lab.track.companion import check_installed

    check_installed()


def _mirrored(folder: RunFolder, track: TrackConfig) -> AbstractContextManager[None]:
    from golf.lab.track.companion import mirrored

    return mirrored(folder, track)


def fill_in() -> None:
    """Let runs of this process use the products that are here. `golf/__init__.py` calls it."""
    if _is_here("lab"):
        SERVICES.plan_lines = _plan_lines
        SERVICES.prove, SERVICES.prove_trained = _prove, _prove_trained
        SERVICES.about_expected = _about_expected
        SERVICES.check_tracker, SERVICES.mirrored = _check_tracker, _mirrored
    if _is_here("submission"):
        SERVICES.code_bytes = _code_bytes


def _is_here(product: str) -> bool:
    return (ROOT / "golf" / product / "__init__.py").exists()
