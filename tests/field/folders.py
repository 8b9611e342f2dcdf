"""Submissions for the audit's tests: three seeds, every claim true, the whole validation split scored."""

import json
import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKENS, TEXT_BYTES = 62_021_632, 151_080_000
SEEDS = {
    1337: (1.22612345, 13_780, 15_800_120),
    42: (1.22754321, 13_701, 15_803_000),
    7: (1.22891234, 13_755, 15_798_444),
}
LARGEST = max(model for _, _, model in SEEDS.values())
SCRIPT = '''"""A script."""
import torch
import sentencepiece


def eval_val(model, val_tokens):
    return model(val_tokens)


def main():
    print(glob("fineweb_train_*.bin"), glob("fineweb_val_*.bin"))
'''
LOG = """logs/x.txt
train_loader:dataset:fineweb10B_sp1024 train_shards:80
val_loader:shards pattern=./data/datasets/fineweb10B_sp1024/fineweb_val_*.bin tokens:62021632
train_batch_tokens:524288 train_seq_len:1024 iterations:20000 warmup_steps:20 max_wallclock_seconds:600.000
seed:{seed}
step:{steps}/20000 val_loss:{before_loss:.4f} val_bpb:{before:.4f} train_time:{ms}ms step_avg:{step_ms:.2f}ms
stopping_early: wallclock_cap train_time:{ms}ms step:{steps}/20000
DIAGNOSTIC post_ema val_loss:{before_loss:.8f} val_bpb:{before:.8f} eval_time:1400ms
Serialized model: 67224983 bytes
Code size: {code} bytes
Serialized model int8+zlib: {model} bytes (payload:17178912 raw_torch:17224025 payload_ratio:3.91x)
Total submission size int8+zlib: {total} bytes
final_int8_zlib_roundtrip val_loss:{loss:.4f} val_bpb:{bpb:.4f} eval_time:{eval_ms}ms
final_int8_zlib_roundtrip_exact val_loss:{loss:.8f} val_bpb:{bpb:.8f}
"""


def loss_of(bpb: float) -> float:
    """Return the loss in nats per token that is `bpb` on the whole split."""
    return bpb * math.log(2) * TEXT_BYTES / TOKENS


def train_log(seed: int, bpb: float, *, steps: int = 13_700, model: int = 15_800_000, **changes: Any) -> str:
    values = {"ms": 600_010, "eval_ms": 1400, "code": len(SCRIPT), "loss": loss_of(bpb), **changes}
    before = bpb - 0.0071
    values |= {"before": before, "before_loss": loss_of(before), "step_ms": values["ms"] / steps}
    return LOG.format(seed=seed, bpb=bpb, steps=steps, model=model, total=model + values["code"], **values)


def log_of(folder: Path, seed: int, bpb: float | None = None, **changes: Any) -> None:
    """Write the log of a seed of `SEEDS`, with changes."""
    usual, steps, model = SEEDS[seed]
    text = train_log(seed, bpb or usual, **{"steps": steps, "model": model, **changes})
    (folder / f"train_seed{seed}.log").write_text(text)


def write(folder: Path, script: str | bytes = SCRIPT) -> Path:
    """Write a submission without a fault, whose logs count the bytes of `script`, and return its folder."""
    raw = script.encode() if isinstance(script, str) else script
    size = len(raw)
    (folder / "train_gpt.py").write_bytes(raw)
    for seed in SEEDS:
        log_of(folder, seed, code=size)
    scores = [bpb for bpb, _, _ in SEEDS.values()]
    mean = statistics.fmean(scores)
    values = {"author": "A", "github_id": "a", "name": "N", "blurb": "B", "date": "2026-04-01", "track": "10min_16mb"}
    numbers = {"val_loss": round(loss_of(mean), 8), "val_bpb": round(mean, 8), "val_bpb_std": statistics.stdev(scores)}
    sizes = {"bytes_total": LARGEST + size, "bytes_code": size}
    per_seed = {
        str(seed): {"val_bpb": bpb, "steps": steps, "artifact_bytes": model + size, "eval_time_s": 1.4}
        for seed, (bpb, steps, model) in SEEDS.items()
    }
    everything = {**values, **numbers, **sizes, "seeds": [*SEEDS], "seed_results": per_seed, "hardware": "8xH100 80GB"}
    (folder / "submission.json").write_text(json.dumps(everything, indent=1))
    rows = "".join(f"| {seed} | {bpb:.4f} | {steps:,} |\n" for seed, (bpb, steps, _) in SEEDS.items())
    (folder / "README.md").write_text(
        f"# N\n\nval_bpb: {mean:.4f}\n\n| seed | val_bpb | steps |\n|---|---|---|\n{rows}"
    )
    return folder


def claims(folder: Path, **changes: Any) -> None:
    """Change submission.json; `...` removes a field."""
    values = json.loads((folder / "submission.json").read_text()) | changes
    kept = {key: value for key, value in values.items() if value is not ...}
    (folder / "submission.json").write_text(json.dumps(kept, indent=1))


def in_file(folder: Path, name: str, old: str, new: str) -> None:
    """Replace the pattern `old` in a file, which must match."""
    text = (folder / name).read_text()
    assert re.search(old, text), (name, old)
    (folder / name).write_text(re.sub(old, new, text))


def in_logs(folder: Path, old: str, new: str) -> None:
    for seed in SEEDS:
        in_file(folder, f"train_seed{seed}.log", old, new)


Change = Callable[[Path], object]  # of a folder
