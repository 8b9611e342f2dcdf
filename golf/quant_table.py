"""The table of number formats of one finished run: its checkpoint under every preset of conf/quant, nothing trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from golf.composition import CONF_DIR, compose
from golf.config import Config, QuantConfig
from golf.errors import GolfError
from golf.loop.quant_gap import ENOUGH_TOKENS, QuantGap, quant_gaps
from golf.model.checkpoint import read_weights
from golf.run.folder import RunFolder

HEAD = "| quant | before | after | gap | artifact bytes | seconds |\n|---|---|---|---|---|---|"
FIRST = "int8"


def presets() -> list[str]:
    """Options of the group, by name, the baseline's first."""
    names = (path.stem for path in Path(CONF_DIR, "quant").glob("*.yaml"))
    return sorted(names, key=lambda name: (name != FIRST, name))


def quant_of(choice: str, cfg: Config) -> QuantConfig:
    """`choice`, a preset and overrides, as the run's own scale would have it."""
    name, *overrides = choice.split()
    return compose([f"quant={name}", f"scale={cfg.scale.name}", "launch.nproc=1", *overrides]).quant


def gaps_of_run(folder: RunFolder, choices: Sequence[str] = (), *, tokens: int = ENOUGH_TOKENS) -> Iterator[QuantGap]:
    """`quant_gaps` of the weights in `folder` under `choices`, or all presets; `GolfError` if it has none."""
    if not folder.config.is_file() or not folder.weights.is_file():
        raise GolfError(f"{folder.path} is not the folder of a finished run: it needs config.json and weights.")
    cfg = folder.read_config()
    quants = {choice: quant_of(choice, cfg) for choice in choices or presets()}
    return quant_gaps(cfg, read_weights(folder.weights), quants, tokens=tokens)


def print_gaps(gaps: Iterator[QuantGap]) -> None:
    """A row in Markdown for each, as it is finished."""
    print(HEAD, flush=True)
    tokens = 0
    for gap in gaps:
        scores = f"{gap.before_bpb:.4f} | {gap.after_bpb:.4f} | {gap.gap_bpb:+.5f} ± {gap.gap_standard_error:.5f}"
        print(f"| {gap.name} | {scores} | {gap.artifact_bytes:,} | {gap.seconds:.1f} |", flush=True)
        tokens = gap.tokens
    print(f"\n{tokens:,} tokens, float32; bits per byte")
