"""The public script's subprocess: `python -m bench.shim TASK SEQUENCES CONFIG SCRIPT` runs it unchanged, step by step.

A training step ends with the script's own log line. Without a GPU the functions through which the script would reach
one are replaced by their CPU counterparts; the arithmetic stays as written. In float32 its casts to bf16 are left out,
as golf's are.
"""

from __future__ import annotations

import builtins
import inspect
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.public import pause
from golf.settings.config import Config, from_dict
from golf.settings.hardware import cpu_cores

STEP_LINE = re.compile(r"step:\d+/\d+ train_loss:")


def main() -> None:
    task, sequences, config, script = sys.argv[1:]
    cfg = from_dict(Config, json.loads(Path(config).read_text(encoding="utf-8")))
    if cfg.launch.device == "cpu":
        torch.set_num_threads(cfg.launch.threads or cpu_cores())
        replace_cuda(script)
        replace_casts(cfg.model.compute_dtype)
    if cfg.launch.compile == "off":
        replace(torch, "compile", lambda f=None, **_: f if f is not None else (lambda g: g))
    sys.argv = [script]
    if task == "sliding":
        slide(runpy.run_path(script, run_name="public"), cfg, int(sequences))
    else:
        pause_after_steps()
        runpy.run_path(script, run_name="__main__")


def replace(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def pause_after_steps() -> None:
    """Make `print` pause after the line that reports a step."""
    say = builtins.print

    def print_and_pause(*values: Any, **options: Any) -> None:
        say(*values, **options)
        # The scripts print each line to their log file as well, with `file=`.
        if "file" not in options and values and STEP_LINE.match(str(values[0])):
            pause()

    builtins.print = print_and_pause


def replace_cuda(script: str) -> None:
    """Make `torch.cuda` answer as if there were one device, which is the CPU."""
    # It reads `torch.device` once, when it is imported, and must see the real one.
    import torch._dynamo

    nothing: dict[str, Any] = {"device_count": 1, "current_device": 0}
    zeros = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
    silent = ("set_device", "synchronize", "manual_seed", "manual_seed_all", "empty_cache", "reset_peak_memory_stats")
    for name, value in {**nothing, **dict.fromkeys(zeros, 0), **dict.fromkeys(silent)}.items():
        replace(torch.cuda, name, _returning(value))
    # Only the script is told that there is a GPU: torch.compile asks, too, and would try to use it.
    replace(torch.cuda, "is_available", lambda: sys._getframe(1).f_code.co_filename == script)
    replace(torch, "device", Device)
    for kind in (torch.Tensor, torch.nn.Module):
        replace(kind, "cuda", lambda self, *_, **__: self)
    replace(torch.Tensor, "pin_memory", lambda self, *_, **__: self)
    run = subprocess.run

    def run_what_exists(command: Any, *args: Any, **options: Any) -> Any:
        if command[:1] == ["nvidia-smi"]:
            return subprocess.CompletedProcess(command, 0, "", "")
        return run(command, *args, **options)

    replace(subprocess, "run", run_what_exists)


def _returning(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


class _AnyDevice(type):
    """Metaclass that makes `Device(...)` a CPU and every real device an instance of it."""

    real = torch.device

    def __call__(cls, *args: Any, **options: Any) -> torch.device:
        kind = str(args[0] if args else options.get("type", "cpu"))
        return _AnyDevice.real("cpu") if kind.startswith("cuda") else _AnyDevice.real(*args, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _AnyDevice.real)


class Device(metaclass=_AnyDevice):
    """Replacement of `torch.device` for a script that knows only GPUs."""


def replace_casts(dtype: str) -> None:
    """Make autocast work on the CPU in bf16. For float32 it does nothing, and other casts to bf16 are left out."""
    real = torch.autocast

    def autocast(device_type: str = "cuda", dtype: Any = None, enabled: bool = True, **_: Any) -> Any:
        return real("cpu", torch.bfloat16, enabled=enabled and in_bf16)

    in_bf16 = dtype == "bf16"
    replace(torch, "autocast", autocast)
    if not in_bf16:
        for kind in (torch.Tensor, torch.nn.Module):
            replace(kind, "bfloat16", lambda self: self.float())


def slide(public: dict[str, Any], cfg: Config, sequences: int) -> None:
    """Call the script's `eval_val_sliding` on its own model again and again, with arguments by parameter name."""
    args = public["Hyperparameters"]()
    device = torch.device(cfg.launch.device)
    shape = inspect.signature(public["GPT"].__init__).parameters
    model = public["GPT"](**{name: getattr(args, name) for name in shape if hasattr(args, name)}).to(device)
    if cfg.model.compute_dtype == "bf16":
        for part in model.bfloat16().modules():
            # The public scripts keep the weights of these layers in float32 and cast them in each product.
            if isinstance(part, public["CastedLinear"]):
                part.float()
    tokenizer = public["spm"].SentencePieceProcessor(model_file=args.tokenizer_path)
    base_bytes, leading_space, boundary = public["build_sentencepiece_luts"](tokenizer, args.vocab_size, device)
    known = {"args": args, "base_model": model, "rank": 0, "world_size": 1, "device": device}
    known |= {"base_bytes_lut": base_bytes, "has_leading_space_lut": leading_space, "is_boundary_token_lut": boundary}
    known |= {"stride": cfg.eval.stride, "batch_seqs": cfg.eval.stride_batch_seqs}
    tokens = public["load_validation_tokens"](args.val_files, args.train_seq_len)
    known["val_tokens"] = tokens[: sequences * cfg.data.train_seq_len + 1]
    wanted = inspect.signature(public["eval_val_sliding"]).parameters
    while True:
        pause()
        public["eval_val_sliding"](**{name: known[name] for name in wanted if name in known})


if __name__ == "__main__":
    main()
