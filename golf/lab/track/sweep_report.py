"""Send a sweep's table as one W&B run of type `report`: W&B's own tables have no standard deviations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golf.files import read_object
from golf.lab.report.findings import Findings, judged
from golf.lab.report.results import results_table
from golf.lab.report.study import Study, read_study
from golf.lab.report.table import Table
from golf.lab.track.mirror_record import MirrorRecord
from golf.lab.track.stream import attached
from golf.lab.track.wandb_client import leave_agent, open_run
from golf.run.folder import RunFolder
from golf.run.result import OK
from golf.settings.config import RulesConfig, from_dict
from golf.settings.jobs_config import TrackConfig

RESULTS = "results"


def stream_report(folder: Path, track: TrackConfig, record: MirrorRecord, rules: RulesConfig | None = None) -> None:
    """Log the table of `golf report` for the sweep. Raises `TrackError` if a part did not arrive.

    Without `rules` the sweep is judged by the rules that its runs were made with.
    """
    study = read_study([str(folder)])
    findings = judged(study, rules or rules_of(study))
    table = results_table(findings)
    leave_agent()
    run = open_run(track, folder, **_description(findings, table, track, record.id))
    record.url, record.files = run.url, str(run.files.relative_to(folder))
    record.write(folder)
    run.log_table(RESULTS, *cells(table))
    best = findings.best.counted[0].path if findings.best else None
    files = attached(RunFolder(best), track.attach) if best else []
    label = findings.best.label if findings.best else None
    run.finish({"state": OK, "variants": len(findings.variants), "best": label}, files)


def rules_of(study: Study) -> RulesConfig:
    """Return the rules of the first run that can be read; the defaults if there is none."""
    paths = [row.path for variant in study.variants for row in variant.rows if row.path]
    recorded = (read_object(path / "config.json").get("rules") for path in paths)
    return from_dict(RulesConfig, next((rules for rules in recorded if rules), {}))


def cells(table: Table) -> tuple[list[str], list[list[Any]]]:
    """Return the names of the columns and the rows of plain values, as in the table's CSV form."""
    columns = [column.key for column in table.columns if column.in_csv]
    return columns, [[row.get(key) for key in columns] for row in table.rows]


def _description(findings: Findings, table: Table, track: TrackConfig, id: str) -> dict[str, Any]:
    """Return the arguments of `wandb.init` that describe the report."""
    study = findings.study
    about = {"sweep": study.title, "kind": study.kind, "swept": list(study.swept), "command": study.command}
    return {
        "id": id,
        "name": f"report {study.title}",
        "group": track.group or study.title,
        "job_type": "report",
        "tags": ["report", *track.tags],
        "notes": "\n".join(table.notes) or None,
        "config": about | {f"rules/{key}": value for key, value in vars(findings.rules).items()},
    }
