"""Mirror other people's runs to W&B, one run each, from the record that `golf import` keeps of a submission.

Summaries have the keys of our own runs. Curves are read from the imported logs if these are still in their place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.foreign.log_lines import StepLine
from golf.foreign.log_reader import read_log
from golf.foreign.text import UnreadableError
from golf.jobs.track.keys import read_object
from golf.jobs.track.mirror_record import MirrorRecord
from golf.jobs.track.stream import CHARTS, DEFAULT_AXIS
from golf.jobs.track.wandb_client import open_run
from golf.report.imported_rows import DAMAGED, imported_variants, rows_of_record
from golf.report.rows import MEASURED, RunRow
from golf.run.result import OK
from golf.settings.jobs_config import TrackConfig

SCORES = {
    "pre_quant_bpb": "pre_quant/val_bpb",
    "post_quant_bpb": "post_quant/val_bpb",
    "sliding_bpb": "post_quant_sliding/val_bpb",
    "ttt_bpb": "post_quant_ttt/val_bpb",
}
SAME_NAME = ("state", "reason", "val_bpb", "val_loss", "how", *MEASURED)


def stream_import(folder: Path, track: TrackConfig, record: MirrorRecord) -> None:
    """Mirror every run of the submission in `folder`.

    Raises `TrackError` if W&B does not take a run, `GolfError` for a damaged record.
    """
    values = read_object(folder / "import.json")
    try:
        rows, runs = rows_of_record(values, folder), values["runs"]
        logs = _curves(Path(values["imported_from"]), runs)
    except DAMAGED as error:
        raise GolfError(f"{folder / 'import.json'} cannot be read: import it again") from error
    labels = {row: variant.label for variant in imported_variants(rows) for row in variant.rows}
    for number, (row, imported, curve) in enumerate(zip(rows, runs, logs, strict=True), start=1):
        about = {"name": row.name, "variant": labels[row], "seed": row.seed, "machine/gpu": row.machine}
        about |= {"submission": values["name"], "imported_from": values["imported_from"]}
        config = {**_settings(imported), **_known(about)}
        run = open_run(
            track,
            folder,
            id=f"{record.id}-{number}",
            name=config["name"],
            group=track.group or config["submission"],
            job_type="import",
            tags=["imported", *track.tags],
            config=config,
        )
        # Written after every run, so that an upload that fails leaves a way to those before it.
        record.url, record.files = run.url, str(run.files.parent.relative_to(folder))
        record.write(folder)
        run.set_axis(CHARTS, DEFAULT_AXIS)
        for line in curve:
            run.log(step_values(line, config.get("train_batch_tokens")))
        # W&B shows a run whose exit code is not 0 as failed, as it shows our own.
        run.finish(score_values(row), exit_code=int(row.state != OK))


def step_values(line: StepLine, batch_tokens: float | None) -> dict[str, Any]:
    """Return a log's values of one step by the names of `keys`. `batch_tokens` are the tokens of a step, if known."""
    row = {
        "step": line.step,
        "train_seconds": line.seconds,
        "tokens": line.step * int(batch_tokens) if batch_tokens else None,
        "train/loss": line.train_loss,
        "val/loss": line.val_loss,
        "val/bpb": line.val_bpb,
    }
    return _known(row)


def score_values(row: RunRow) -> dict[str, Any]:
    """Return a row's values by the names of our own runs' summaries, and its faults."""
    values = {key: getattr(row, key) for key in SAME_NAME} | {name: getattr(row, key) for key, name in SCORES.items()}
    if row.pre_quant_bpb is not None and row.post_quant_bpb is not None:
        values["quant_gap_bpb"] = row.post_quant_bpb - row.pre_quant_bpb
    return _known(values | {"faults": list(row.faults)})


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _settings(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the numeric settings that the log printed, without the figures that a row has anyway."""
    known = {*SAME_NAME, *SCORES, "seed"}
    found = {key: float(figure["value"]) for key, figure in run["figures"].items() if key not in known}
    return {key: value for key, value in found.items() if math.isfinite(value)}


def _curves(origin: Path, runs: Sequence[Mapping[str, Any]]) -> Iterator[list[StepLine]]:
    """Yield the training and validation lines of each run; none if its log is gone.

    One log can hold several runs. They are listed in the log's order.
    """
    taken: Counter[str] = Counter()
    for file in (run["files"][0] for run in runs):
        found = _curves_of_log(origin / file)
        yield found[taken[file]] if taken[file] < len(found) else []
        taken[file] += 1


def _curves_of_log(path: Path) -> list[list[StepLine]]:
    """Return the lines of each run of a log; empty if it cannot be read."""
    try:
        return [run.curve for run in read_log(path).runs] if path.is_file() else []
    except UnreadableError:
        return []
