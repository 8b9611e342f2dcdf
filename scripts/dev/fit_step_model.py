"""Fit the constants of `golf/lab/plan/step_model.py` to public runs and print them with their errors.

    python scripts/dev/fit_step_model.py [speed_runs.csv] [--records records.csv]

By default the file is ../shared/reference/speed_runs.csv. A row is the runs of one folder with one shape. With the
records it prints the Markdown table of docs/planning.md: what `golf plan` says of their presets against published
step times.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from golf.lab.plan.gpu_plan import gpu_plan  # noqa: E402
from golf.lab.plan.machines import overrides_on, parse_machine  # noqa: E402
from golf.lab.plan.step_model import (  # noqa: E402
    MEMORY,
    TIME,
    MemoryConstants,
    Phases,
    TimeConstants,
    Work,
    attended_tokens,
    log_step_ms,
    memory_terms,
    peak_mib,
    step_ms,
)
from golf.settings.composition import compose  # noqa: E402
from golf.settings.hardware import assumed  # noqa: E402
from golf.training.model.build import shapeless_model  # noqa: E402

DEFAULT = ROOT.parent / "shared/reference/speed_runs.csv"
FEWEST_STEPS = 200
LOSS_SCALE = 0.03  # scale of the Cauchy loss on log ratios: slow machines, a fifth of the runs, must not pull the fit
FAR = 0.15  # errors beyond this are named
SHAPE = (
    *("layers", "dim", "mlp_hidden", "vocab", "seq_len", "batch_tokens", "params", "accum"),
    *("loop_extra", "loop_at", "fa3", "varlen", "xsa_layers"),
)

Cell = tuple[list[tuple[float, Work]], float, float]  # phases, milliseconds, MiB (0 if unknown)


def cells(path: Path) -> list[Cell]:
    """Return the shapes of 8×H100 runs, one for each author and shape, with the medians of time and memory."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if _counts(row)]
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in ("group", *SHAPE)), []).append(row)
    found = []
    for same in groups.values():
        memory = [_number(row, "mem_mib") for row in same if _number(row, "mem_mib")]
        milliseconds = statistics.median(float(row["step_ms"]) for row in same)
        found.append((phases(same[0]), milliseconds, statistics.median(memory) if memory else 0.0))
    return found


def _counts(row: dict[str, str]) -> bool:
    known = row["hw"] == "H100" and row["gpus"] == "8" and row["arch_check"] == "ok" and not row["odd"]
    return known and _number(row, "steps") >= FEWEST_STEPS


def phases(row: dict[str, str]) -> list[tuple[float, Work]]:
    """Return (share of the training time, work) before and after layers begin to loop."""
    at, extra = row["loop_at"], _number(row, "loop_extra")
    if not at or not extra:
        return [(1.0, work(row, extra if not at else 0.0))]
    share = float(at) if not at.startswith("step") else int(at[4:]) / _number(row, "steps")
    # The switch is given as a step: its share of the steps is not that of the time, as later steps are longer.
    if at.startswith("step"):
        longer = 1 + extra / _number(row, "layers")
        share = share / (share + (1 - share) * longer)
    share = min(share, 1.0)
    return [(share, work(row, 0.0)), (1.0 - share, work(row, extra))]


def work(row: dict[str, str], extra: float) -> Work:
    """Return the work of a step with `extra` layers run again."""
    layers, seq_len = _number(row, "layers"), int(_number(row, "seq_len"))
    gpus, batch = int(_number(row, "gpus")), int(_number(row, "batch_tokens"))
    return Work(
        gpus=gpus,
        batch_tokens=batch,
        micro_tokens=batch // gpus // max(int(_number(row, "accum")), 1),
        seq_len=attended_tokens(seq_len, row["varlen"] == "1"),
        layers=layers + extra,
        dim=int(_number(row, "dim")),
        mlp_hidden=int(_number(row, "mlp_hidden")),
        vocab=int(_number(row, "vocab")),
        params=int(_number(row, "params")),
        matmul_params=_number(row, "matmul_params") + extra * _number(row, "layer_params"),
        xsa_share=_number(row, "xsa_layers") / layers,
        flash3=row["fa3"] != "0",
    )


def _number(row: dict[str, str], key: str) -> float:
    return float(row[key]) if row[key] else 0.0


def errors(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 90 % quantile of |log(measured / predicted)|."""
    far = np.abs(np.log(np.array(measured) / np.array(predicted)))
    return float(np.median(far)), float(np.quantile(far, 0.9))


def planned(experiment: str, has_fa3: bool) -> tuple[float, float]:
    """Return milliseconds a step and MiB on 8×H100 as `golf plan` has them for an experiment."""
    machine = parse_machine("8xh100")
    with assumed(machine.hardware()):
        attention = f"model.attention={'fa3' if has_fa3 else 'sdpa'}"
        cfg = compose(overrides_on(machine, [f"experiment={experiment}", attention]))
    plan = gpu_plan(cfg, shapeless_model(cfg), machine, [])
    return plan.formula_ms, plan.peak_mib


def published(runs: Path, records: Path) -> list[dict[str, str]]:
    """Return the records of 8×H100 that have a preset and logs with a known shape, with `experiment` and `fa3`."""
    with (ROOT / "docs/records.csv").open(newline="", encoding="utf-8") as file:
        presets = {row["folder"]: row["experiment"] for row in csv.DictReader(file) if row["experiment"]}
    with runs.open(encoding="utf-8") as file:
        shapes = [row for row in csv.DictReader(file) if row["arch_check"] == "ok" and not row["odd"]]
    with records.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["hw"] == "8xH100" and row["step_ms"]]
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        known = [shape for shape in shapes if _same(shape, row)]
        if known and row["folder"] in presets:
            added = {"experiment": presets[row["folder"]], "fa3": known[0]["fa3"]}
            found.setdefault(row["folder"], row | added)
    return list(found.values())


def records_table(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return Markdown rows of `published` records: published time and memory, and those that `golf plan` predicts."""
    lines, times, far = ["| record | ms | planned | error | MiB | planned |", "|---|---|---|---|---|---|"], [], []
    for row in rows:
        ms, mib = planned(row["experiment"], row["fa3"] != "0")
        measured = float(row["step_ms"])
        times.append(abs(ms / measured - 1))
        far += [row["folder"]] if times[-1] > FAR else []
        memory = f"{int(row['mem_mib']):,} | {mib:,.0f}" if row["mem_mib"] else " | "
        lines.append(f"| {row['folder'][:44]} | {measured:.1f} | {ms:.1f} | {ms / measured - 1:+.1%} | {memory} |")
    named = ", ".join(far) or "none"
    summary = f"{len(times)} records, median error {statistics.median(times):.1%}, beyond {FAR:.0%}: {named}."
    return [*lines, "", summary]


def _same(row: dict[str, str], record: dict[str, str]) -> bool:
    """Tell whether a row of runs is of `record`; the runs' folders are cut off."""
    named = record["folder"].startswith(row["folder"][:32]) and row["hw"] == "H100" and row["gpus"] == "8"
    close = ("params", "step_ms", "mem_mib")
    return named and all(abs(_number(row, k) - _number(record, k)) <= 0.01 * _number(record, k) for k in close)


def fit_time(runs: Sequence[Phases], milliseconds: Sequence[float]) -> TimeConstants:
    """Return the constants that fit the measured `milliseconds` of `runs` best."""
    # In logs an error of 5 % counts the same for a short step and a long one.
    measured = np.log(milliseconds)
    found = least_squares(
        lambda values: log_step_ms(runs, values) - measured, astuple(TIME), loss="cauchy", f_scale=LOSS_SCALE
    )
    return TimeConstants(*(float(v) for v in found.x))


def fit_memory(works: Sequence[Work], mib: Sequence[float]) -> MemoryConstants:
    """Return the constants that fit the measured `mib` of `works` best."""
    terms, measured = memory_terms(works), np.log(mib)

    def residuals(values: np.ndarray) -> np.ndarray:
        return np.log(terms @ values[:5] + values[5]) - measured

    found = least_squares(residuals, astuple(MEMORY), bounds=(0, np.inf), loss="cauchy", f_scale=LOSS_SCALE)
    return MemoryConstants(*(float(v) for v in found.x))


def main(arguments: Sequence[str]) -> int:
    """Print the fitted constants and their errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="?", type=Path, default=DEFAULT, help="runs (default: %(default)s)")
    parser.add_argument("--records", type=Path, help="also print the table of published step times")
    args = parser.parse_args(arguments)
    path = args.csv
    if not path.exists():
        parser.error(f"{path} is not there: name the file of runs")
    found = cells(path)
    time = fit_time([c[0] for c in found], [c[1] for c in found])
    median, worst = errors([step_ms(c[0], time) for c in found], [c[1] for c in found])
    print(f"TIME = {time}\n{len(found)} shapes: median {median:.1%}, p90 {worst:.1%}")
    kept = [(c[0][-1][1], c[2]) for c in found if c[2]]
    memory = fit_memory([w for w, _ in kept], [mib for _, mib in kept])
    median, worst = errors([peak_mib(w, memory) for w, _ in kept], [mib for _, mib in kept])
    print(f"MEMORY = {memory}\n{len(kept)} shapes: median {median:.1%}, p90 {worst:.1%}")
    if args.records:
        print("\n".join(records_table(published(path, args.records))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
