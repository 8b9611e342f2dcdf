"""Part `kernels` of `golf gpu-check`: every kernel forward and backward against float64, at the sizes of records."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.commands.gpu_part import Answer, Order, Task
from golf.commands.gpu_steps import WITHOUT_SCORES
from golf.errors import GolfError
from golf.settings.composition import compose
from golf.settings.config import Config, micro_batch_tokens
from golf.training.data.documents import BOS_ID
from golf.training.data.packed import most_pieces
from golf.training.loop.state import build_state
from golf.training.model.attention import choose_kernel, is_flash, kernel
from golf.training.model.documents import PieceAttention, piece_starts
from golf.training.model.kernels.choice import LossKernel, MLPKernel
from golf.training.model.kernels.trial import Rivals, milliseconds, seeded
from golf.training.ranks import Ranks

SHAPES = ("naive_baseline", "records/2026-04-27_caseops_lqer_9hp")
BACKENDS = {"cuda": ("varlen", "sdpa", "fa3", "cudnn", "fa2"), "cpu": ("sdpa",)}
BY_DOCUMENT = ("varlen", "sdpa", "fa3", "fa2")
NAMES = ("y", "dq", "dk", "dv")
BOUND = 2e-2  # relative distance of bf16 from float64, whose own roundings are 0.004
DOCUMENT_TOKENS = 256  # mean length of a document, the shortest for which the tables of the kernels have room
CHUNKS = 16  # of a micro-batch, whose float64 copies would not fit at once


def tasks(order: Order) -> Iterator[Task]:
    """Yield the rows of the part: attention by documents first, for which the fewest kernels are proven."""
    device = torch.device(order.device)
    without = ["launch.compile=off", *WITHOUT_SCORES]
    configs = {name: compose([f"experiment={name}", *order.scale, *without]) for name in SHAPES}
    # A small scale may give both the same shape.
    shapes = {_shape(cfg): cfg for cfg in configs.values()}
    for by_document in (True, False):
        for shape, cfg in shapes.items():
            for backend in BACKENDS[device.type]:
                if not by_document or backend in BY_DOCUMENT:
                    what = f"{backend}{' by document' * by_document}, {shape}"
                    yield what, functools.partial(check_attention, cfg, backend, device, by_document=by_document)
    for name, cfg in configs.items():
        for kind in (LossKernel, MLPKernel):
            what = f"{kind.__name__}, {name.rpartition('/')[2]}"
            yield what, functools.partial(check_triton, cfg, kind, device)


def _shape(cfg: Config) -> str:
    tokens, model = cfg.data.train_seq_len, cfg.model
    rows, channels = micro_batch_tokens(cfg) // tokens, model.model_dim // model.num_heads
    return f"{rows} × {tokens} tokens, {model.num_heads} heads of {channels}, {model.num_kv_heads} of keys"


def check_attention(cfg: Config, backend: str, device: torch.device, *, by_document: bool) -> Answer:
    """Compare a kernel's attention and gradients with those of float64, over rows or within documents."""
    cfg = copy.deepcopy(cfg)
    cfg.model.attention, cfg.eval.documents = backend, by_document
    longest, heads = cfg.data.train_seq_len, (cfg.model.num_heads, cfg.model.num_kv_heads, cfg.model.num_kv_heads)
    sizes = micro_batch_tokens(cfg) // longest, longest
    channels, generator = cfg.model.model_dim // cfg.model.num_heads, seeded(device)
    ids = _documents(sizes, generator) if by_document else torch.zeros(sizes, dtype=torch.int64, device=device)
    inputs = [
        torch.randn(*sizes, n, channels, device=device, generator=generator).bfloat16().requires_grad_() for n in heads
    ]
    gradient = torch.randn(inputs[0].shape, device=device, generator=generator).bfloat16()
    try:
        choose_kernel(device, cfg)
        attend = _attention(cfg, ids, by_document=by_document)
    except (GolfError, ImportError) as error:
        if is_flash(cfg.model):
            return True, f"not there: {str(error)[:120]}"
        raise

    def passes() -> list[Tensor]:
        y = attend(*inputs)
        return [y.detach(), *torch.autograd.grad(y, inputs, gradient)]

    found = passes()
    expected = exact_attention([t.detach() for t in inputs], gradient, piece_starts(ids, longest))
    passed, detail = judged(NAMES, found, expected)
    return passed, f"{detail}; {milliseconds(passes):.2f} ms"


def _attention(cfg: Config, ids: Tensor, *, by_document: bool) -> Callable[..., Tensor]:
    """Return attention as the training calls it."""
    if not by_document:
        return kernel(cfg.model)
    attend, longest = PieceAttention(cfg.model), cfg.data.train_seq_len
    pieces = attend.pieces(ids, longest)
    return lambda q, k, v: attend(q, k, v, pieces, longest)


def _documents(sizes: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Return ids `[rows, tokens]` of documents of unequal lengths, as many as the kernels' tables hold."""
    count = sizes[0] * sizes[1]
    ids = torch.zeros(count, dtype=torch.int64, device=generator.device)
    # Rows begin documents, too, and pieces end at the length of a row.
    begins = torch.randperm(count, generator=generator, device=generator.device)
    ids[begins[: max(0, count // DOCUMENT_TOKENS - sizes[0])]] = BOS_ID
    assert int((piece_starts(ids.view(sizes), sizes[1]).unique()).numel()) <= most_pieces(count, sizes[1])
    return ids.view(sizes)


def exact_attention(inputs: Sequence[Tensor], gradient: Tensor, starts: Tensor) -> list[Tensor]:
    """Return attention within pieces and the gradients of `inputs`, in float64, piece by piece from the definition.

    `inputs` are q `[B, T, H, D]`, k and v `[B, T, K, D]`; `starts` `[B·T]` are those of `piece_starts`.
    """
    lengths = starts.unique_consecutive(return_counts=True)[1].tolist()
    flat = [t.flatten(0, 1).split(lengths) for t in (*inputs, gradient)]
    pieces = [_exact_piece([t.double() for t in piece]) for piece in zip(*flat, strict=True)]
    shapes = [gradient.shape, *(t.shape for t in inputs)]
    return [torch.cat(parts).view(shape) for parts, shape in zip(zip(*pieces, strict=True), shapes, strict=True)]


def _exact_piece(tensors: list[Tensor]) -> list[Tensor]:
    """Return softmax attention of one piece and its gradients in float32, for q, k, v and dy in float64 `[n, …, D]`."""
    q, k, v = (t.requires_grad_() for t in tensors[:3])
    shared = q.size(1) // k.size(1)
    queries, keys, values = (t.transpose(0, 1) for t in (q, *(t.repeat_interleave(shared, 1) for t in (k, v))))
    scores = queries @ keys.mT / math.sqrt(q.size(2))
    hidden = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1)
    y = (scores.masked_fill(hidden, -math.inf).softmax(2) @ values).transpose(0, 1)
    return [t.detach().float() for t in (y, *torch.autograd.grad(y, (q, k, v), tensors[3]))]


def check_triton(cfg: Config, kind: type[LossKernel | MLPKernel], device: torch.device) -> Answer:
    """Compare a kernel in Triton with its definition in float64."""
    if device.type != "cuda":
        return True, "not tried: it is for CUDA devices"
    one = kind(build_state(cfg, Ranks(device=device)).model)
    if problem := one.problem(device):
        return True, f"not tried: {problem}"
    rivals = one.rivals(micro_batch_tokens(cfg), device)
    return compare(rivals, rivals.torchs if kind is MLPKernel else exact_loss(cfg.model.logit_softcap))


def compare(rivals: Rivals, definition: Callable[..., Tensor]) -> Answer:
    """Compare a kernel, forward and backward, with its `definition` on tensors in float64; return both times, too."""
    given = [t.detach().requires_grad_(t.is_floating_point()) for t in rivals.inputs]
    differentiable = [t for t in given if t.requires_grad]
    like = rivals.ours(*given)
    gradient = torch.randn(like.shape, device=like.device, generator=seeded(like.device)).to(like.dtype)

    def passes(function: Callable[..., Tensor]) -> list[Tensor]:
        y = function(*given)
        return [y.detach(), *torch.autograd.grad(y, differentiable, gradient)]

    found, expected = passes(rivals.ours), exact_in_chunks(definition, rivals.inputs, gradient)
    passed, detail = judged(("y", "dx", "dup", "ddown"), found, expected)
    ours, torchs = (milliseconds(functools.partial(passes, one)) for one in (rivals.ours, rivals.torchs))
    return passed, f"{detail}; {ours:.2f} ms, torch's operations one by one {torchs:.2f} ms"


def exact_loss(cap: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the cross-entropy of logits `[n, V]` under a softcap, in nats `[n]`."""
    return lambda logits, targets: F.cross_entropy(cap * (logits / cap).tanh(), targets, reduction="none")


def exact_in_chunks(definition: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor) -> list[Tensor]:
    """Return the result and the gradients in float64, in float32; the rows of the first input are independent."""
    rows = inputs[0].size(0)
    others = [t.double().requires_grad_() if t.is_floating_point() else t for t in inputs[1:]]
    results, firsts = [], []
    for chunk in torch.arange(rows, device=gradient.device).chunk(CHUNKS):
        first = inputs[0][chunk].double().requires_grad_()
        own = [t if t.is_floating_point() else t[chunk] for t in others]
        y = definition(first, *own)
        y.backward(gradient[chunk].double())
        assert first.grad is not None
        results.append(y.detach().float())
        firsts.append(first.grad.float())
    sums = [t.grad.float() for t in others if t.grad is not None]
    return [torch.cat(results), torch.cat(firsts), *sums]


def judged(names: Sequence[str], found: Sequence[Tensor], expected: Sequence[Tensor]) -> Answer:
    """Return whether all distances are within the bound, and the distance of each name."""
    distances = {
        name: float((own.float() - exact).norm() / exact.norm())
        for name, own, exact in zip(names, found, expected, strict=False)
    }
    # The comparison is false for what is not a number.
    return all(d < BOUND for d in distances.values()), ", ".join(f"{name} {d:.1e}" for name, d in distances.items())
