"""What number formats cost one trained checkpoint: `python scripts/quant_gap.py RUN [presets…]`.

RUN is a run folder. Each preset is a name from conf/quant (all of them if none is given), or a name with overrides in
quotes: "int6_mixed quant.scale_floor=eps". Every one is packed, unpacked and scored in float32 against the weights
before quantization on the same batches; ± is the standard error of the paired difference. Nothing is trained.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from golf.composition import CONF_DIR, compose
from golf.config import Config, QuantConfig
from golf.errors import GolfError
from golf.launch.process import tune_allocator
from golf.loop.quant_gap import ENOUGH_TOKENS, QuantGap, quant_gaps
from golf.model.checkpoint import read_weights
from golf.run.folder import RunFolder

HEAD = "| quant | before | after | gap | artifact bytes | seconds |\n|---|---|---|---|---|---|"


def presets() -> list[str]:
    """Options of the group, by name."""
    return sorted(path.stem for path in Path(CONF_DIR, "quant").glob("*.yaml"))


def quant_of(choice: str, cfg: Config) -> QuantConfig:
    """`choice` as the run's own scale would have it."""
    name, *overrides = choice.split()
    return compose([f"quant={name}", f"scale={cfg.scale.name}", "launch.nproc=1", *overrides]).quant


def markdown(gap: QuantGap) -> str:
    scores = f"{gap.before_bpb:.4f} | {gap.after_bpb:.4f} | {gap.gap_bpb:+.5f} ± {gap.gap_standard_error:.5f}"
    return f"| {gap.name} | {scores} | {gap.artifact_bytes:,} | {gap.seconds:.1f} |"


def show(gaps: Iterator[QuantGap], as_json: bool) -> None:
    if as_json:
        print(json.dumps([dataclasses.asdict(gap) for gap in gaps], indent=2))
        return
    print(HEAD)
    tokens = 0
    for gap in gaps:
        print(markdown(gap), flush=True)
        tokens = gap.tokens
    print(f"\n{tokens:,} tokens, float32; bits per byte")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder, multirun/<name>-<variant>/seed<k>")
    parser.add_argument("presets", nargs="*", help="of conf/quant, with overrides in quotes")
    parser.add_argument(
        "--tokens", type=int, default=ENOUGH_TOKENS, help="to score (default: %(default)s; 0: the whole split)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args()
    tune_allocator()
    folder = RunFolder(arguments.run)
    try:
        if not folder.config.is_file() or not folder.weights.is_file():
            raise GolfError(f"{arguments.run} is not the folder of a finished run: it needs config.json and weights.")
        cfg = folder.read_config()
        quants = {choice: quant_of(choice, cfg) for choice in arguments.presets or presets()}
        show(quant_gaps(cfg, read_weights(folder.weights), quants, tokens=arguments.tokens), arguments.json)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    sys.exit(main())
