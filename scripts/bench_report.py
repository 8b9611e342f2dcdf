"""Time of a report on 1,000 runs: `python scripts/bench_report.py RUN_FOLDER` copies the files of that run."""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VARIANTS, SEEDS, REPEATS = 200, 5, 5
SEED_SD_BPB = 0.0007


def main() -> int:
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "result.json").is_file():
        print(f"error: name the folder of a finished run.\n{__doc__}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        _multiply(Path(sys.argv[1]), Path(folder))
        for name, options in (("table", []), ("table and page", ["--html", f"{folder}/page.html"])):
            seconds, cpu = zip(*(_timed(folder, options) for _ in range(REPEATS)), strict=True)
            print(f"{name}: {statistics.median(seconds):.2f} s, of which CPU {statistics.median(cpu):.2f} s")
    return 0


def _multiply(run: Path, root: Path) -> None:
    files = {
        name: json.loads((run / name).read_text(encoding="utf-8"))
        for name in ("result.json", "config.json", "environment.json")
    }
    noise = random.Random(1)
    runs = []
    for variant in range(VARIANTS):
        variant_id, matrix_lr = f"{variant:08x}", round(0.0005 * (variant + 1), 4)
        files["config.json"]["optim"]["matrix_lr"] = matrix_lr
        for seed in range(SEEDS):
            folder = root / f"bench-{variant_id}" / f"seed{seed}"
            folder.mkdir(parents=True)
            files["result.json"] |= {"variant_id": variant_id, "seed": seed, "state": "ok"}
            files["result.json"]["post_quant"]["val_bpb"] = 1.22 + noise.gauss(0, SEED_SD_BPB)
            for name, values in files.items():
                (folder / name).write_text(json.dumps(values), encoding="utf-8")
            (folder / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
            overrides = [f"optim.matrix_lr={matrix_lr}", f"seed={seed}"]
            runs.append({"overrides": overrides, "variant_id": variant_id, "seed": seed, "name": "bench"})
    (root / "sweeps/bench").mkdir(parents=True)
    record = {"name": "bench", "command": [], "reference": None, "swept": ["optim.matrix_lr"], "kind": "grid"}
    (root / "sweeps/bench/sweep.json").write_text(json.dumps({**record, "runs": runs}), encoding="utf-8")


def _timed(folder: str, options: list[str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of one report."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, str(ROOT / "scripts/report.py"), "bench", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "GOLF_RUNS": folder})
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
