"""End a run of a sweep whose validation halfway says that its variant will not catch up with the reference.

A run is compared with runs of the reference at the same share of the budget, and only with those of one schedule and
data: across schedules an early validation tells next to nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from golf.errors import GolfError
from golf.files import write_json
from golf.jobs.launch.process import Interrupted, interruptible
from golf.run.folder import RunFolder, runs_root, state_of
from golf.run.result import INTERRUPTED, OK, PRUNED, Result
from golf.settings.config import Config, training_seconds

POLL_SECONDS = 0.2
LATEST_SHARE = 0.7  # share of the budget; after it little would be saved
SAME_GROUPS = ("schedule", "data", "budget", "scale")
Curve = list[tuple[float, float]]  # (share of the budget, bits per byte)


@dataclass(frozen=True)
class PruneRule:
    """When a run of a sweep ends early; `prune.json` in its folder."""

    reference: str  # id of the variant that it is compared with
    behind_bpb: float  # bits per byte behind the reference at which it ends
    at: float  # share of the budget from which on the first validation counts

    def write(self, folder: RunFolder) -> None:
        """Write the rule into the run's folder."""
        write_json(folder.path / "prune.json", asdict(self))

    @staticmethod
    def read(folder: RunFolder) -> PruneRule | None:
        """Return the rule of the run in `folder`; None if it runs to its end in any case."""
        path = folder.path / "prune.json"
        return PruneRule(**json.loads(path.read_text())) if path.exists() else None


@dataclass
class PruneWatch:
    """Outcome of the watch over a run, filled in by its thread."""

    sentence: str = ""  # why the run was told to end; empty if it was not
    ended: threading.Event = field(default_factory=threading.Event)

    def judged(self, result: Result, folder: RunFolder) -> Result:
        """Return the result as `pruned` if the watch has ended the run, and write it so."""
        if self.sentence and result.state == INTERRUPTED:
            result.state, result.reason = PRUNED, self.sentence
            folder.write_failure(result)
        return result


@contextlib.contextmanager
def watched(folder: RunFolder, cfg: Config) -> Iterator[PruneWatch]:
    """Watch the validations of the run in `folder` within the block, and stop the block's run as its rule says."""
    watch = PruneWatch()
    rule = PruneRule.read(folder)
    if rule is None:
        yield watch
        return
    thread = threading.Thread(target=_watch, args=(watch, rule, folder, cfg), daemon=True)
    # The signal may come just after the run has ended by itself: then it changes nothing.
    with contextlib.suppress(Interrupted), interruptible():
        thread.start()
        try:
            yield watch
        finally:
            watch.ended.set()
            thread.join()


def why_prune(rule: PruneRule, folder: RunFolder, cfg: Config) -> str | None:
    """Return why the run in `folder` is to end, empty if it goes on to its end, None as long as that is open."""
    own = validations(folder, cfg)
    share, bpb = next((point for point in own if point[0] >= rule.at), (0.0, 0.0))
    if not share:
        return None
    if share > LATEST_SHARE:
        return ""
    values = [value for curve in _reference_curves(rule, folder) if (value := _at(curve, share)) is not None]
    if not values:
        return ""
    behind = bpb - sum(values) / len(values)
    if behind <= rule.behind_bpb:
        return ""
    return f"{behind:.4f} bpb behind the reference at {share:.0%} of the budget"


def validations(folder: RunFolder, cfg: Config) -> Curve:
    """Return the validations of a run by share of the budget, the earliest first."""
    found: Curve = []
    for event in folder.events():
        with contextlib.suppress(KeyError, TypeError):
            if event["event"] == "validation" and math.isfinite(event["val_bpb"]):
                found.append((_share(cfg, event), event["val_bpb"]))
    return found


def _watch(watch: PruneWatch, rule: PruneRule, folder: RunFolder, cfg: Config) -> None:
    while not watch.ended.wait(POLL_SECONDS):
        why = why_prune(rule, folder, cfg)
        if why:
            watch.sentence = why
            os.kill(os.getpid(), signal.SIGTERM)
        if why is not None:
            return


def _share(cfg: Config, event: Mapping[str, Any]) -> float:
    seconds = training_seconds(cfg)
    return event["train_seconds"] / seconds if seconds else event["step"] / cfg.schedule.iterations


def _reference_curves(rule: PruneRule, folder: RunFolder) -> Iterator[Curve]:
    """Yield the validations of the reference's runs of the same schedule and data, also of those that go on."""
    own = json.loads(folder.config.read_text())
    for path in sorted(runs_root().glob(f"*-{rule.reference}/seed*")):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, GolfError):
            other = json.loads((path / "config.json").read_text())
            same = all(other[group] == own[group] for group in SAME_GROUPS)
            if same and set(other["tech"]) == set(own["tech"]) and state_of(run := RunFolder(path)) in (OK, ""):
                yield validations(run, run.read_config())


def _at(curve: Curve, share: float) -> float | None:
    """Return the score at this share of the budget, linear in the logarithm of the share; None beside the curve."""
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if 0 < x0 <= share <= x1:
            return y0 if x0 == x1 else y0 + (y1 - y0) * math.log(share / x0) / math.log(x1 / x0)
    # A run that goes on and a run of equal steps may have their last validation at this very share.
    return next((y for x, y in curve if x == share), None)
