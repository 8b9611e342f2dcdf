"""Print the Markdown table of docs/planning.md: predicted seconds of test-time training against published ones.

    python scripts/dev/compare_scoring_seconds.py [records.csv]

By default the file is ../shared/reference/records.csv, whose seconds are means over a record's logs.
"""

from __future__ import annotations

import csv
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from golf.lab.plan.gpu_scoring import ttt_seconds  # noqa: E402
from golf.lab.plan.machines import overrides_on, parse_machine  # noqa: E402
from golf.settings.composition import compose  # noqa: E402
from golf.settings.hardware import assumed  # noqa: E402
from golf.training.model.build import shapeless_model  # noqa: E402

DEFAULT = ROOT.parent / "shared/reference/records.csv"
FIRST_FA3 = "2026-03-20"  # the earlier records with test-time training have torch's own attention


def predicted(experiment: str, has_fa3: bool) -> tuple[str, float]:
    """Return the method of an experiment's test-time training in words, and its seconds on 8×H100."""
    machine = parse_machine("8xh100")
    with assumed(machine.hardware()):
        cfg = compose(overrides_on(machine, [f"experiment={experiment}"]))
    cfg.model.attention = "fa3" if has_fa3 else "sdpa"
    ttt = cfg.eval.ttt
    phases = f", {ttt.lora_phases.count} phases" if ttt.lora_phases.count else ""
    return f"{ttt.method}{phases}", ttt_seconds(cfg, shapeless_model(cfg))


def main() -> None:
    with (ROOT / "docs/records.csv").open(newline="", encoding="utf-8") as file:
        experiments = {row["folder"]: row["experiment"] for row in csv.DictReader(file)}
    with (Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["eval_ttt_s"] and experiments.get(row["folder"])]
    errors = []
    print("| record | method | s | predicted | error |\n|---|---|---|---|---|")
    for row in rows:
        method, seconds = predicted(experiments[row["folder"]], row["date"] >= FIRST_FA3)
        published = float(row["eval_ttt_s"])
        errors.append(seconds / published - 1)
        print(f"| {row['folder'][:44]} | {method} | {published:.0f} | {seconds:.0f} | {errors[-1]:+.0%} |")
    middle, largest = statistics.median(map(abs, errors)), max(map(abs, errors))
    print(f"\n{len(errors)} records, median error {middle:.0%}, largest {largest:.0%}")


if __name__ == "__main__":
    main()
