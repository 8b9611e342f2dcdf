"""The step of a public `train_gpt.py` for an H100 that is not here, set up by its own environment variables.

It stays as it is. Flash attention 3, which it may import, is torch's flash attention here: the same inputs and outputs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.fake_h100 import replace
from bench.step_costs import Costs
from golf.errors import GolfError
from golf.settings.config import ModelConfig
from golf.training.model.attention import variable_length_kernel

RANKS = 8  # of the public runs


def public_step(script: Path, costs: Costs, device: torch.device, *, late: bool) -> int:
    """Run a micro-batch and the optimizer of `script`; return the tokens. `late` switches its loops on.

    Raises `GolfError` if the script has no `GPT`, or builds it in a way that is not known.
    """
    public, args = _imported(script, costs)
    try:
        model: Any = _model(public, args).to(device).bfloat16()
    except (AttributeError, TypeError) as error:
        raise GolfError(f"--against {script}: its GPT is built in a way that is not known here ({error}).") from error
    _restore_float32(public, model)
    if late and hasattr(model, "looping_active"):
        model.looping_active = True
    tokens, length = args.train_batch_tokens // RANKS, args.train_seq_len
    forward = inspect.signature(model.forward).parameters
    packed = "cu_seqlens" in forward
    for part in model.modules():
        if type(part).__name__ == "Rotary":
            # The tables are there once the script has warmed up.
            part(tokens if packed else length, device, torch.bfloat16)
    batch = [torch.zeros((1, tokens) if packed else (tokens // length, length), dtype=torch.int64, device=device)] * 2
    pieces: dict[str, Any] = {}
    if packed:
        starts = torch.zeros(tokens // length + 1, dtype=torch.int32, device=device)
        pieces = {"cu_seqlens": starts, "max_seqlen": length}
    compiled = costs.compile(model, fullgraph=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = compiled(*(t.clone() for t in batch), **pieces)
    loss.backward()
    costs.update(model, _optimizer(public, args, model))
    return tokens


def _imported(script: Path, costs: Costs) -> tuple[Any, Any]:
    """Return the module of `script`, imported without its main, and its hyperparameters."""
    _stand_in_for_cuda()
    # In sys.modules, where Triton and torch's custom operations look a function's module up.
    spec = importlib.util.spec_from_file_location("public_train_gpt", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    replace(torch, compile=costs.compile)
    spec.loader.exec_module(module)
    for name in ("GPT", "Hyperparameters"):
        if not hasattr(module, name):
            raise GolfError(f"--against {script}: it has no {name}. Name a train_gpt.py that is not packed.")
    orthogonalize = "zeropower_via_newtonschulz5"
    if hasattr(module, orthogonalize) and f"{orthogonalize} = torch.compile" in script.read_text(encoding="utf-8"):
        # Early scripts compile it in their main.
        replace(module, **{orthogonalize: costs.compile(getattr(module, orthogonalize))})
    if getattr(module, "BOS_ID", 1) is None:
        # Its loader sets it.
        replace(module, BOS_ID=1)
    return module, module.Hyperparameters()


def _stand_in_for_cuda() -> None:
    """Replace what a script asks of CUDA while it is imported and built."""

    torchs_pieces = variable_length_kernel(ModelConfig(attention="varlen"))
    assert torchs_pieces is not None

    def whole(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, **_: Any) -> Tensor:
        heads_first = (t.bfloat16().transpose(1, 2) for t in (q, k, v))
        return torch.ops.aten._scaled_dot_product_flash_attention(*heads_first, 0.0, causal)[0].transpose(1, 2)

    def pieces(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, max_seqlen_q: int, **_: Any) -> Tensor:
        return torchs_pieces(q.bfloat16(), k.bfloat16(), v.bfloat16(), cu_seqlens_q, max_seqlen_q)

    flash3 = types.ModuleType("flash_attn_interface")
    replace(flash3, flash_attn_func=whole, flash_attn_varlen_func=pieces)
    sys.modules["flash_attn_interface"] = flash3
    torchs: Callable[..., Tensor] = F.scaled_dot_product_attention
    # Autocast casts its inputs, and does not know the stand-in of the fake device.
    replace(F, scaled_dot_product_attention=lambda q, k, v, **o: torchs(*(t.bfloat16() for t in (q, k, v)), **o))
    norm = F.rms_norm

    def norm_as_then(*args: Any, **options: Any) -> Tensor:
        # Autocast leaves a norm in float32 since torch 2.12 (pytorch issue 188955), which no public run had.
        with torch.autocast("cuda", enabled=False):
            return norm(*args, **options)

    replace(F, rms_norm=norm_as_then)
    stream = types.SimpleNamespace(wait_stream=lambda _: None)
    replace(torch.cuda, Stream=lambda: stream, current_stream=lambda *_: stream)
    replace(torch.cuda, stream=lambda _: contextlib.nullcontext())


def _model(public: Any, args: Any) -> nn.Module:
    """Return the script's model: early scripts pass numbers by name, later ones all hyperparameters at once."""
    wanted = [name for name in inspect.signature(public.GPT.__init__).parameters if name != "self"]
    model = public.GPT(args) if len(wanted) == 1 else public.GPT(**{name: getattr(args, name) for name in wanted})
    assert isinstance(model, nn.Module)
    return model


def _restore_float32(public: Any, model: nn.Module) -> None:
    """Put the weights that the script keeps in float32 back into it, by its own functions."""
    for part in model.modules():
        if isinstance(part, getattr(public, "CastedLinear", ())):
            part.float()
    for name in ("restore_low_dim_params_to_fp32", "restore_fp32_params"):
        if hasattr(public, name):
            getattr(public, name)(model)


def _optimizer(public: Any, args: Any, model: Any) -> Callable[[], object]:
    """Return the function that updates the weights of `model` as the script does."""
    if hasattr(public, "Optimizers"):
        return public.Optimizers(args, model).step
    # Early scripts build them in their main.
    controls = public.CONTROL_TENSOR_NAME_PATTERNS
    named = [*model.blocks.named_parameters(), ("skip_weights", model.skip_weights)]
    small = [p for name, p in named if p.ndim < 2 or any(pattern in name for pattern in controls)]
    matrices = [p for name, p in named if not any(p is other for other in small)]
    muon = public.Muon(matrices, lr=args.matrix_lr, momentum=args.muon_momentum, backend_steps=args.muon_backend_steps)
    adams = [torch.optim.Adam(params, fused=True) for params in ([model.tok_emb.weight], small)]
    return lambda: [optimizer.step() for optimizer in (*adams, muon)]
