"""Seconds that GPTQ takes on the matrices of the 11-layer record model: `python scripts/bench_gptq.py [--threads N]`.

Weights and inputs are drawn; the time does not depend on them. Calibration is not in it.
"""

import argparse
import time

import torch

from golf.artifact.quant.hessians import rounded_by_gptq
from golf.artifact.quant.policy import quantize
from golf.settings.composition import compose
from golf.training.model.build import shapeless_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quant", nargs="+", default=["gptq_int6", "sdclip_gptq"])
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    for name in arguments.quant:
        cfg = compose(["experiment=pr593_11l", "scale=record", "launch.nproc=1", f"quant={name}"])
        shapes = shapeless_model(cfg).state_dict()
        weights = {n: 0.1 * torch.randn(t.shape) for n, t in shapes.items()}
        hessians = {}
        for matrix in rounded_by_gptq(weights, cfg.quant):
            x = torch.randn(4096, weights[matrix].size(1), device=arguments.device)
            hessians[matrix] = x.T @ x
        start, on_cpu = time.perf_counter(), time.process_time()
        quantize(weights, cfg.quant, hessians)
        seconds, on_cpu = time.perf_counter() - start, time.process_time() - on_cpu
        numbers = sum(weights[matrix].numel() for matrix in hessians)
        print(f"{name}: {len(hessians)} matrices of {numbers:,} weights in {seconds:.0f} s, {on_cpu:.0f} of CPU")


if __name__ == "__main__":
    main()
