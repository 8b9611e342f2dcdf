"""An upper bound on the bits per byte of a masked_diffusion model that reveals its tokens at random in K steps.

    python -m ideas.masked_diffusion.bound RUN

The bound is no probability and no val_bpb, and no verdict takes it. The chain of val_bpb reveals tokens in another
order, and may lie above or below it. The bound is that of the artifact on the whole validation
split, in the rows of the standard score. The number after ± is the standard error that the random masks leave.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from golf.artifact.container import load
from golf.errors import GolfError
from golf.idea_folders import refuse_changed
from golf.run.folder import RunFolder
from golf.settings.config import Config, eval_seq_len
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.model.build import build_scored_model
from golf.training.ranks import Ranks
from ideas.masked_diffusion.masked_diffusion import PASS_TOKENS, drawn, masked_nats

MaskedNats = Callable[[Tensor, Tensor, Tensor], Tensor]  # ids, targets and masks [B, T] to nats [B, T], 0 if not masked


@dataclass(frozen=True)
class Bound:
    """An upper bound on the bits per byte of a model that reveals its tokens at random, estimated by random masks."""

    bound_bpb: float
    standard_error: float
    steps: int  # K, the ratios of masked tokens
    samples: int  # masks of each ratio for each row
    targets: int


def step_weights(ratios: Sequence[float]) -> list[float]:
    """Return the weight of the masked tokens' nats at each of the growing `ratios` of masked tokens.

    With r_0 = 0 it is (r_k − r_{k−1}) / r_k, so that Σ_k weight · r_k = r_K = 1: each token is paid once. Raises
    `GolfError` for ratios that leave some of it out.
    """
    before = [0.0, *ratios]
    if sorted(set(before)) != before or ratios[-1] != 1.0:
        raise GolfError(
            f"Ratios of masked tokens have to grow from above 0 to 1, and these end at {ratios[-1]:g}: the tokens that "
            "are never masked would cost nothing, and the sum would be no bound."
        )
    return [(r - s) / r for s, r in zip(before, ratios, strict=False)]


@torch.no_grad()
def bounds_of(nats: MaskedNats, ids: Tensor, targets: Tensor, steps: int, samples: int) -> Tensor:
    """Return estimates of the bound of every row of targets `[B, T]`, in nats, float64 `[samples, B]`.

    Their means are the bound Σ_k (r_k − r_{k−1}) / r_k · E Σ_masked nats, with a share r_k = k/K of the tokens masked.
    """
    ratios = [k / steps for k in range(1, steps + 1)]
    found = torch.zeros(samples, len(ids), dtype=torch.float64)
    for sample in range(samples):
        for k, (ratio, weight) in enumerate(zip(ratios, step_weights(ratios), strict=True)):
            # Draws are counted, so that no two have the same masks; there is no seed to choose.
            masked = drawn(targets, torch.tensor(sample * steps + k, device=ids.device))[0] < ratio
            found[sample] += weight * nats(ids, targets, masked).sum(1).double().cpu()
    return found


def bound_of(cfg: Config, weights: dict[str, Tensor], dataset: Dataset, steps: int, samples: int) -> Bound:
    """Return the bound of `weights` on the validation split of `dataset`, on `cfg.launch.device`."""
    ranks = Ranks(device=torch.device(cfg.launch.device))
    model = build_scored_model(cfg, ranks.device)
    model.load_state_dict(weights)
    seq_len = eval_seq_len(cfg)
    tokens = torch.from_numpy(dataset.validation.astype("int64"))
    rows = (tokens.numel() - 1) // seq_len
    inputs, targets = tokens[: rows * seq_len].view(-1, seq_len), tokens[1 : rows * seq_len + 1].view(-1, seq_len)

    def nats(*batch: Tensor) -> Tensor:
        return masked_nats(model, *batch)

    parts = [
        bounds_of(nats, ids.to(ranks.device), wanted.to(ranks.device), steps, samples)
        for ids, wanted in zip(*(t.split(max(1, PASS_TOKENS // seq_len)) for t in (inputs, targets)), strict=True)
    ]
    found = torch.cat(parts, 1)
    bits = math.log(2) * int(dataset.target_bytes[: rows * seq_len].sum(dtype="int64"))
    error = (found.var(0).sum() / samples).sqrt().item()
    return Bound(found.mean(0).sum().item() / bits, error / bits, steps, samples, targets.numel())


def main(arguments: list[str]) -> int:
    """Print the bound of a run."""
    parser = argparse.ArgumentParser(prog="bound", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--steps", type=int, default=64, help="K, steps in which the tokens are revealed")
    parser.add_argument("--samples", type=int, default=2, help="masks for each step and row, at least 2")
    args = parser.parse_args(arguments)
    folder = RunFolder(args.run)
    cfg = folder.read_config()
    refuse_changed(cfg.idea_code)
    if "masked_diffusion" not in cfg.tech:
        raise GolfError(f"{args.run} is no run of masked_diffusion, whose masks the bound needs: its score is val_bpb.")
    if cfg.eval.documents:
        raise GolfError("The bound is that of whole rows, and this run is scored by document: train one without.")
    if args.steps < 1 or args.samples < 2:
        raise GolfError("--steps has to be at least 1, and --samples at least 2 for a standard error.")
    found = bound_of(cfg, load(folder.artifact).state_dict(), open_dataset(cfg), args.steps, args.samples)
    print(
        f"bound_bpb {found.bound_bpb:.4f} ± {found.standard_error:.4f} with K = {found.steps} steps and "
        f"{found.samples} masks of each for a row, over {found.targets:,} targets.\n"
        "This is an upper bound for tokens that are revealed at random: no val_bpb, and in no verdict beside one."
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GolfError as error:
        sys.exit(f"{error}")
