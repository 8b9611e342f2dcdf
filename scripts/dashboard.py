"""Make the W&B views that compare seeds and variants: `python scripts/dashboard.py --project golf`.

The views are a workspace and a report: curves with mean and standard deviation over seconds, bars by variant, bytes
against score, and the computed table. --print needs neither an account nor a network. The package wandb-workspaces has
to be installed, as by `pip install "golf[wandb]"`.

W&B computes mean and standard deviation of a group only in charts, for at most 100 runs, and not in its tables (issues
1846 and 3404 of wandb/wandb). The table shown here is therefore the one that golf computes and logs.
"""

import argparse
import json
import os
import sys
from typing import Any

try:
    import wandb_workspaces.expr as expr
    import wandb_workspaces.reports.v2 as reports
    import wandb_workspaces.workspaces as workspaces
except ImportError:
    sys.exit("error: the dashboard needs wandb_workspaces, which is not installed: pip install 'golf[wandb]'")

NAME = "Golf: variants and seeds"
MOST_RUNS = 100  # most runs that W&B samples in a grouped chart
RESULTS = "results"  # key of the table in runs of type `report`, see golf/lab/track/sweep_report.py
CURVES = (
    ("Validation, bits per byte over seconds of training", "val/bpb", "train_seconds"),
    ("Validation, bits per byte over tokens", "val/bpb", "tokens"),
    ("Training loss, nats per token over seconds of training", "train/loss", "train_seconds"),
    ("Learning-rate multiplier over seconds of training", "train/lr_multiplier", "train_seconds"),
)
BARS = (("From the artifact", "post_quant/val_bpb"), ("Quantization gap", "quant_gap_bpb"))
EXPLANATION = (
    "Curves and bars are means over the seeds of a variant with one standard deviation. Only runs whose state is ok "
    "are shown; `results` has differences, p-values and verdicts as `golf report` computes them."
)


def finished() -> expr.FilterExpr:
    """Return the filter for runs that ended `ok`. In every other state W&B has a failed run."""
    return expr.Metric("State") == "finished"


def seeds_together() -> dict[str, Any]:
    """Return the settings of a chart that shows each variant's mean and standard deviation."""
    by_variant = {"groupby": reports.Config("variant"), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    return {**by_variant, "max_runs_to_show": MOST_RUNS}


def curves() -> list[reports.LinePlot]:
    """Return the line plots of `CURVES`."""
    titles = {"train_seconds": "seconds", "tokens": "tokens"}
    return [
        reports.LinePlot(
            title=title,
            x=x,
            y=[y],
            title_x=titles[x],
            # W&B's smoothing would hide how far seeds differ.
            smoothing_type="none",
            **seeds_together(),
        )
        for title, y, x in CURVES
    ]


def comparisons() -> list[Any]:
    """Return the charts that compare variants: score, quantization gap, and score against bytes."""
    bars = [reports.BarPlot(title=f"{what}, bits per byte", metrics=[key], **seeds_together()) for what, key in BARS]
    total, score = reports.SummaryMetric("total_bytes"), reports.SummaryMetric("val_bpb")
    return [*bars, reports.ScatterPlot(title="Final score against bytes", x=total, y=score)]


def table() -> reports.WeavePanelSummaryTable:
    """Return the panel with the table that golf logged."""
    return reports.WeavePanelSummaryTable(table_name=RESULTS, layout=reports.Layout(w=24, h=12))


def workspace(entity: str, project: str) -> workspaces.Workspace:
    """Return a saved view of the project's page."""
    sections = {"Table": [table()], "Variants": comparisons(), "Curves": curves()}
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=[workspaces.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()],
        settings=workspaces.WorkspaceSettings(x_axis="train_seconds", max_runs=MOST_RUNS),
        runset_settings=workspaces.RunsetSettings(
            filters=[finished()],
            groupby=[expr.Config("variant")],
            order=[expr.Ordering(expr.Summary("val_bpb"), ascending=True)],
        ),
    )


def report(entity: str, project: str) -> reports.Report:
    """Return a report with the same panels, as a page to share."""
    runs = reports.Runset(name="runs that are ok", filters=[finished()])
    return reports.Report(
        entity=entity,
        project=project,
        title=NAME,
        width="fluid",
        blocks=[reports.P(EXPLANATION), reports.PanelGrid(runsets=[runs], panels=[table(), *comparisons(), *curves()])],
    )


def specification(entity: str, project: str) -> dict[str, Any]:
    """Return both views as plain JSON values. Needs no account and no network."""
    # The package has no public way to a specification, only to an upload.
    made: dict[str, Any] = {"workspace": workspace(entity, project), "report": report(entity, project)}
    return {
        name: json.loads(view._to_model().model_dump_json(by_alias=True, exclude_none=True))
        for name, view in made.items()
    }


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    project = os.environ.get("WANDB_PROJECT", "golf")
    parser.add_argument("--project", default=project, help="W&B project (default: WANDB_PROJECT, or golf)")
    entity = "W&B team or user (default: WANDB_ENTITY, or the key's own)"
    parser.add_argument("--entity", default=os.environ.get("WANDB_ENTITY"), help=entity)
    parser.add_argument("--print", action="store_true", help="print the specification as JSON and send nothing")
    return parser.parse_args()


def main() -> int:
    """Make the views and print their addresses; the exit status is 1 if W&B refuses them."""
    a = options()
    if a.print:
        print(json.dumps(specification(a.entity or "ENTITY", a.project), indent=2))
        return 0
    import wandb

    try:
        entity = a.entity or wandb.Api().default_entity or ""
        print(workspace(entity, a.project).save().url)
        print(report(entity, a.project).save().url)
    except Exception as error:
        # The client raises exceptions of many kinds.
        print(f"error: W&B did not take the views ({' '.join(str(error).split())}).", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
