"""`golf expect RUN REFERENCE`: is this the run that it should be, judged by its losses so far.

Losses of the run stand beside those of the reference's seeds at the same steps, as soon as both have them. What one
seed more would show is a prediction interval: Student's t times sd · √(1 + 1/n) around the mean of n seeds. A public
record has few seeds, so its sd is pooled over all records of record_losses.csv; a reference of one's own has its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from golf.errors import GolfError
from golf.lab.report.board_curves import TRAIN, VALIDATION, MetricsTail
from golf.lab.report.findings import Findings, variant_name
from golf.lab.report.record_curves import Curve, record_curves, shared_steps
from golf.lab.report.statistics import Comparison, pooled_sd
from golf.lab.report.store import run_folders, run_id, standing_row
from golf.registry import CHANGES_ORDER
from golf.run.folder import RunFolder
from golf.run.identity import identity
from golf.run.progress import how_far
from golf.settings.composition import compose
from golf.settings.config import Config, eval_seq_len, world_size
from golf.tables import grouped
from golf.words import signed

AGREES, DIFFERS, CANNOT_COMPARE = "agrees", "differs", "cannot_compare"
CONFIDENCE = 0.95
# Settings that make the validation text; that it is the same one is seen in its bytes per token, too.
SCORED_TEXT = ("data.built_from", "data.fingerprint", "data.vocab_size", "data.units")
NOT_TRAINED_ON = ("data.path", "data.tokenizer_path", "data.val_files", "data.byte_sidecar")
MOST_RATIO = 2e-4  # difference of bits per byte per nat between logs of one text, which have four decimals
MOST_PACE = 0.03  # relative difference of the steps of whole runs, beyond which rates are others in the warm-down
WORDS = {VALIDATION: "validation", TRAIN: "training loss"}


@dataclass(frozen=True)
class Reference:
    """Reference that a run is compared with: a public record, or finished seeds of one's own."""

    name: str
    cfg: Config
    curves: list[Curve]
    is_public: bool


@dataclass(frozen=True)
class Expectation:
    """The answer about one run. Differences are in nats per token, the run minus the mean of the reference."""

    run: str
    reference: str
    verdict: str
    reason: str = ""  # why there is no comparison
    losses: str = ""  # validation or training loss
    steps: Sequence[int] = ()
    seeds: int = 0  # of the reference
    difference_nats: float | None = None
    within_nats: float | None = None  # 95 % of right runs are no farther from the mean

    def sentence(self) -> str:
        """Return the answer for people."""
        if self.difference_nats is None:
            return f"{self.run} cannot be compared with {self.reference}: {self.reason}."
        at = f"step {self.steps[-1]:,}"
        if len(self.steps) > 1:
            at = f"{len(self.steps)} steps from {self.steps[0]:,} to {self.steps[-1]:,}"
        seeds = f"the mean of its {self.seeds} seeds" if self.seeds > 1 else "its one seed"
        return (
            f"{self.run} {self.verdict} {'with' if self.verdict == AGREES else 'from'} {self.reference}: {self.losses} "
            f"at {at} is {self.difference_nats:+.4f} nats a token from {seeds}, and 19 of 20 right runs are within "
            f"{self.within_nats:.4f}."
        )


def expectations(runs: Path, named: str) -> list[Expectation]:
    """Return the answers about the runs at or below `runs`, beside the record or the runs that `named` says."""
    folders = run_folders(runs)
    own = [] if named in record_curves() else _own(named)
    if (variants := len({folder.parent for folder in own})) > 1:
        raise GolfError(f"{named} has {variants} variants: name the one that is the reference.")
    return [_expectation(folder, _reference(named, folder, own)) for folder in folders]


def about_expectations(findings: Findings) -> Iterator[str]:
    """Yield a sentence for each running seed whose setting `expect` names what it should be."""
    for variant in findings.variants:
        for row in variant.rows:
            if row.is_open and row.path and (said := about_expected(row.path)):
                yield f"{variant_name(findings, variant)}, seed {row.seed}, goes on: {said}."


def about_expected(folder: Path) -> str:
    """Return how far the losses of a run are from those that its setting `expect` names, in a few words.

    Nothing is said where they do not compare: another text order or batch, other ranks, or no common step yet.
    """
    try:
        if not (named := RunFolder(folder).read_config().expect):
            return ""
        (one,) = expectations(folder, named)
    except GolfError as error:
        return str(error)
    if one.difference_nats is None:
        return ""
    far = f"step {one.steps[-1]:,}: {signed(one.difference_nats)} nats from {one.reference}"
    return f"{far}, right runs are within {one.within_nats:.4f}" + (": something differs" * (one.verdict == DIFFERS))


def _own(named: str) -> list[Path]:
    """Return the run folders that `named` says. Raises `GolfError` if it says neither runs nor a record."""
    try:
        return run_folders(Path(named))
    except GolfError as error:
        known = "2026-03-18_lower_lr, or 2026-03-17_lora_ttt, which trains as the naive baseline"
        raise GolfError(f"{named} is no folder of runs and no record whose losses are known, as {known}.") from error


def _reference(named: str, run: Path, folders: Sequence[Path]) -> Reference:
    """Return the record of that name or else the finished seeds of `folders` without `run` itself."""
    if not folders:
        return _record(named)
    seeds = grouped((folder.name.partition(".")[0], folder) for folder in folders if folder.resolve() != run.resolve())
    rows = [row for row in map(standing_row, seeds.values()) if row.counts]
    curves = [_curve(row.path) for row in rows if row.path]
    return Reference(folders[0].parent.name, RunFolder(folders[0]).read_config(), curves, is_public=False)


@functools.cache
def _record(name: str) -> Reference:
    cfg = compose([f"experiment=records/{name}", "scale=record"])
    return Reference(name, cfg, record_curves()[name], is_public=True)


def _curve(folder: Path) -> Curve:
    """Return what a run has logged so far."""
    tail = MetricsTail(folder)
    tail.refresh()
    losses = {
        kind: {point[0]: point[3] for point in tail.points[kind] if point[0] and point[3] is not None}
        for kind in (VALIDATION, TRAIN)
    }
    ratios = [point[4] / point[3] for point in tail.points[VALIDATION] if point[3] and point[4]]
    ended, seconds = max(((p[0], p[2] or 0.0) for points in tail.points.values() for p in points), default=(0, 0.0))
    share, _ = how_far(RunFolder(folder).read_config(), ended, seconds)
    return Curve(ended / share if share else None, ratios[-1] if ratios else None, losses)


def _expectation(folder: Path, reference: Reference) -> Expectation:
    cfg, run = RunFolder(folder).read_config(), _curve(folder)
    name, reasons = run_id(folder), list[str]()
    if not reference.curves:
        return Expectation(name, reference.name, CANNOT_COMPARE, "no seed of the reference has finished")
    for kind in (VALIDATION, TRAIN):
        steps = shared_steps([run, *reference.curves], kind)
        if said := _another_text(kind, cfg, run, reference) or _no_steps(kind, run, reference, steps):
            reasons.append(said)
            continue
        paced = [step for step in steps if step <= _full_rate(cfg, run, reference) or _is_as_fast(run, reference)]
        if not paced:
            reasons.append(f"{WORDS[kind]}: the run's pace is another, so that rates differ at step {steps[-1]:,}")
            continue
        spread = _spread(kind, reference, paced)
        if spread is None:
            reasons.append("one seed of the reference says nothing of the scatter: train two more")
            break
        return Expectation(name, reference.name, **judged(kind, paced, run, reference.curves, spread))
    return Expectation(name, reference.name, CANNOT_COMPARE, "; ".join(reasons))


def judged(
    kind: str, steps: Sequence[int], run: Curve, seeds: Sequence[Curve], spread: tuple[float, int]
) -> dict[str, Any]:
    """Return verdict and figures of an `Expectation`; `spread` is the sd over seeds and its degrees of freedom."""
    difference = run.mean(kind, steps) - fmean(curve.mean(kind, steps) for curve in seeds)
    sd, df = spread
    low, high = Comparison(0.0, sd * (1 + 1 / len(seeds)) ** 0.5, df, "").interval(CONFIDENCE)
    return {
        "verdict": AGREES if low <= difference <= high else DIFFERS,
        "losses": WORDS[kind],
        "steps": steps,
        "seeds": len(seeds),
        "difference_nats": difference,
        "within_nats": high,
    }


def _spread(kind: str, reference: Reference, steps: Sequence[int]) -> tuple[float, int] | None:
    """Return the standard deviation over seeds with its degrees of freedom, None if nothing tells it."""
    if not reference.is_public:
        return pooled_sd([[curve.mean(kind, steps) for curve in reference.curves]])
    return public_spread(kind, steps[-1])


def public_spread(kind: str, last: int, without: str = "") -> tuple[float, int] | None:
    """Return sd over seeds and degrees of freedom up to step `last`, pooled over the public records but `without`."""
    samples = []
    for name, curves in record_curves().items():
        if name != without and (steps := shared_steps(curves, kind, last)):
            samples.append([curve.mean(kind, steps) for curve in curves])
    return pooled_sd(samples)


def _another_text(kind: str, cfg: Config, run: Curve, reference: Reference) -> str:
    """Return why losses of `kind` are of another text or order; empty if they compare."""
    ours, theirs = text_of(kind, cfg), text_of(kind, reference.cfg)
    if keys := [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]:
        values = ", ".join(f"{key} is {ours.get(key)} and there {theirs.get(key)}" for key in keys[:3])
        return f"{WORDS[kind]}: {values}"
    ratio = next((curve.bpb_per_nat for curve in reference.curves if curve.bpb_per_nat), None)
    if run.bpb_per_nat and ratio and abs(run.bpb_per_nat - ratio) > MOST_RATIO:
        return f"{WORDS[kind]}: the validation text is another, {run.bpb_per_nat:.4f} bpb a nat and there {ratio:.4f}"
    return ""


def text_of(kind: str, cfg: Config) -> dict[str, Any]:
    """Return the settings that have to be equal so that losses of `kind` are of the same tokens."""
    settings = identity(cfg)
    if kind == VALIDATION:
        return {key: settings.get(key) for key in SCORED_TEXT} | {"eval.seq_len": eval_seq_len(cfg)}
    order = {key: value for key, value in settings.items() if key.startswith(("data.", "schedule.stages"))}
    order |= {f"tech.{name}": technique for name, technique in cfg.tech.items() if technique.effect == CHANGES_ORDER}
    # The log has the loss of the first rank's share.
    return {key: value for key, value in order.items() if key not in NOT_TRAINED_ON} | {"ranks": world_size(cfg)}


def _no_steps(kind: str, run: Curve, reference: Reference, steps: Sequence[int]) -> str:
    """Return what is missing if run and reference share no step; empty if they do."""
    if steps:
        return ""
    there = shared_steps(reference.curves, kind)
    at = "at no common step" if not there else "at " + ", ".join(f"{step:,}" for step in there[:4])
    return f"{WORDS[kind]}: the reference has it {at}, the run is at {run.last_step:,}"


def _full_rate(cfg: Config, run: Curve, reference: Reference) -> float:
    """Return the step up to which the rates of run and reference do not depend on how fast they are."""
    ends = [_warmdown_at(cfg, run.total_steps), *(_warmdown_at(reference.cfg, c.total_steps) for c in reference.curves)]
    return min(ends)


def _warmdown_at(cfg: Config, steps: float | None) -> float:
    schedule, steps = cfg.schedule, steps or 0.0
    return steps * (1 - schedule.warmdown_fraction) if schedule.warmdown_fraction else steps - schedule.warmdown_iters


def _is_as_fast(run: Curve, reference: Reference) -> bool:
    totals: Iterable[float] = [curve.total_steps for curve in reference.curves if curve.total_steps]
    return bool(run.total_steps) and abs((run.total_steps or 0.0) / fmean(totals) - 1) <= MOST_PACE
