"""The report of a sweep where its runs are mirrored."""

from __future__ import annotations

from collections.abc import Iterable

from golf.jobs.sweep.record import read_record, sweep_folder
from golf.jobs.sweep.sweep import Row
from golf.settings.config import RulesConfig, is_tracked


def mirror_report(name: str, rows: Iterable[Row], rules: RulesConfig) -> None:
    """Send the table and plots of the sweep `name` to where its runs went, if they went anywhere."""
    track = next((row.track for row in rows if row.track and is_tracked(row.track)), None)
    if track is None or read_record(name) is None:
        return
    from golf.jobs.track.backfill import back_fill

    if done := back_fill(sweep_folder(name), track, rules):
        print(f"W&B report: {done.url or sweep_folder(name) / done.files}", flush=True)
