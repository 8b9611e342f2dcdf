"""Mamba-2: some layers keep a state of fixed size, which decays and takes up each token (state-space duality)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number, one_of
from golf.training.model.documents import short_convolution, starts_of
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear, Context, embed_dtype, rms_norm
from golf.training.model.slots import set_slot
from golf.training.techniques.base import INITIAL_VALUES, Technique, technique
from ideas.mamba2.fla_kernel import scan_of_fla


def in_chunks(t: Tensor, chunk: int) -> Tensor:
    """Return `t` `[B, T, H, …]` as `[B, H, n, C, …]`, the last chunk filled up with zeros."""
    t = F.pad(t, [0, 0] * (t.ndim - 2) + [0, -t.size(1) % chunk])
    return t.unflatten(1, (-1, chunk)).movedim(3, 1)


def decays(log: Tensor, seen: Tensor) -> Tensor:
    """Return e^{log_{j+1} + … + log_i} `[…, n, n]` for `log` `[…, n]` where i (rows) sees j ≤ i (columns), else 0."""
    n = log.size(-1)
    # Each sum has its own terms: differences of long sums would lose the digits of short ones.
    below = torch.ones(n, n, dtype=torch.bool, device=log.device).tril(-1)
    sums = log[..., :, None].expand(*log.shape, n).masked_fill(~below, 0).cumsum(-2)
    # Masked before the exponential: a later token's would overflow, and its gradient would be no number.
    return sums.masked_fill(~seen.tril(), float("-inf")).exp()


def scan(c: Tensor, b: Tensor, x: Tensor, log: Tensor, starts: Tensor, chunk: int) -> Tensor:
    """Return o_t = S_tᵀ c_t `[B, T, H, P]` for the states S_t = e^{log_t} S_{t−1} + b_t ⊗ x_t `[N, P]`.

    `c` and `b` `[B, T, N]` are shared by the heads, `x` is `[B, T, H, P]`, `log` `[B, T, H]`. S is zero before the
    first token of each piece, see `starts_of`.
    """
    tokens, length = x.size(1), min(chunk, x.size(1))
    x, log, c, b, starts = (in_chunks(t, length) for t in (x, log, c[:, :, None], b[:, :, None], starts[..., None]))
    within = decays(log, starts[..., :, None] == starts[..., None, :])
    # What each chunk leaves behind it, [B, H, n, N, P].
    left = (within[..., -1, :, None] * b).mT @ x
    # The state before chunk i has what chunk j left, if both ends are of one piece.
    ends, totals = starts[..., -1], log.sum(-1)
    between = decays(totals, ends[..., :, None] == ends[..., None, :])
    states = (between @ left.flatten(3)).view_as(left)
    states = F.pad(states[:, :, :-1], (0, 0, 0, 0, 1, 0))
    before = F.pad(ends[..., :-1], (1, 0))[..., None]
    carried = (log.cumsum(-1).exp() * (starts == before))[..., None]
    o = (c @ b.mT * within) @ x + (carried * c) @ states
    return o.movedim(1, 3).flatten(1, 2)[:, :tokens]


class Mamba2(nn.Module):
    """W_o n((o + D ⊙ x) ⊙ SiLU(W_z u)), with o of `scan` for the input Δ ⊙ x, and n an RMS norm over all channels.

    Its matrices have the names of attention's: c_t is a query, b_t a key and x_t a value.
    """

    def __init__(self, cfg: Config, tech: StateSpace):
        super().__init__()
        dim, self.tech, self.width = cfg.model.model_dim, tech, embed_dtype(cfg.model.compute_dtype).itemsize
        self.heads, self.channels, self.state = tech.sizes(cfg)
        inner = self.heads * self.channels
        self.c_q, self.c_k = CastedLinear(dim, self.state), CastedLinear(dim, self.state)
        self.c_v, self.c_z = CastedLinear(dim, inner), CastedLinear(dim, inner)
        self.c_step = CastedLinear(dim, self.heads)
        self.proj = CastedLinear(inner, dim, zero_init=True)
        # Rows are taps, the token's own first; columns are the channels of c, b and x.
        filters = torch.empty(tech.taps, 2 * self.state + inner).uniform_(-1, 1)
        self.filters = nn.Parameter(filters / math.sqrt(tech.taps))
        drawn = torch.empty(2, self.heads).uniform_(0, 1)
        self.decay_log = nn.Parameter((1 + 15 * drawn[0]).log())
        step = (math.log(0.001) + drawn[1] * math.log(100)).exp()
        # softplus of it is the step, between 0.001 and 0.1.
        self.step_bias = nn.Parameter(step + (-torch.expm1(-step)).log())
        self.direct = nn.Parameter(torch.ones(self.heads))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Return the output `[B, T, d]` for the normalised input `x`."""
        active, starts = context.active, starts_of(context)
        projected = torch.cat([part(x, active) for part in (self.c_q, self.c_k, self.c_v)], -1)
        mixed = F.silu(short_convolution(projected, self.filters, starts))
        # The state and its steps are float32, whatever the activations are.
        wide = torch.promote_types(x.dtype, torch.float32)
        c, b, values = mixed.to(wide).split((self.state, self.state, self.heads * self.channels), -1)
        values = values.unflatten(-1, (self.heads, -1))
        step = F.softplus(self.c_step(x.to(wide), active) + self.step_bias)
        taken, log = step[..., None] * values, -self.decay_log.exp() * step
        if self.tech.kernel == "fla" and x.is_cuda:
            o = scan_of_fla(c, b, taken, log, starts, x.dtype)
        else:
            o = scan(c, b, taken, log, starts, self.tech.chunk)
        o = (o + self.direct[:, None] * values).flatten(2) * F.silu(self.c_z(x, active))
        return self.proj(rms_norm(o).to(x.dtype), active)

    def flops_per_token(self, seq_len: int) -> float:
        """Return the forward operations of products for each token: two a weight, and those of the chunks."""
        chunk, entries = min(self.tech.chunk, seq_len), self.state * self.channels
        count = -(-seq_len // chunk)
        weights = sum(part.weight.numel() for part in self.children() if isinstance(part, nn.Linear))
        # Scores times values; the state written and read; what earlier chunks left for later ones.
        head = 2 * chunk * self.channels + 4 * entries + 2 * entries * count / chunk
        return 2 * weights + (self.heads * head + 2 * chunk * self.state) * (count * chunk / seq_len)

    def kept_bytes_per_token(self, seq_len: int) -> float:
        """Return the bytes for each token that eager training keeps for the backward pass; a compiler keeps fewer."""
        chunk, n, heads = min(self.tech.chunk, seq_len), self.state, self.heads
        inner, mixed = heads * self.channels, self.filters.size(1)
        # Copies of each tensor, counted on saved tensors. Those of the chunks are float32.
        narrow = 2 * self.proj.out_features + self.tech.taps * mixed + 2 * n + 4 * inner
        wide = 4.6 * inner + 4 * n + 1.3 * chunk + heads * (2 * chunk + 2 * n + 5 + 2 * self.channels * n / chunk)
        return self.width * narrow + 4 * wide


@technique("mamba2")
@dataclass
class StateSpace(Technique):
    """Layers are counted from 0, or from the end if negative; the others keep their attention."""

    source = "arXiv 2405.21060; PR #1644, #1245"
    # After the hooks on attention, which act in the layers that keep theirs, and before initial values are drawn.
    phase = INITIAL_VALUES
    by_layer = True
    # The first takes the values of the first layer into all others, the second joins matrices that are not here.
    conflicts = ("value_residual", "fused_qkv")
    groups = (
        ("*.attn.c_z.weight", "matrix"),
        ("*.attn.c_step.weight", "scalar"),
        ("*.attn.filters", "scalar"),
        ("*.attn.decay_log", "scalar"),
        ("*.attn.step_bias", "scalar"),
        ("*.attn.direct", "scalar"),
    )
    control_names = ("*.attn.c_step.weight", "*.attn.filters", "*.attn.decay_log", "*.attn.step_bias", "*.attn.direct")

    layers: list[int] = field(default_factory=lambda: [2])  # whose attention it replaces
    expand: int = number(2, at_least=1)  # channels of all heads together, in widths of the model
    head_channels: int | None = number(None, at_least=1)  # P; null = the attention's
    state: int | None = number(None, at_least=1)  # N; null = the attention's channels of a head
    taps: int = number(4, at_least=1)  # tokens that the short convolution mixes; 1: none but the token itself
    chunk: int = number(64, at_least=1)  # tokens whose scores are computed at once
    # of a GPU; fla: flash-linear-attention, without the compiler. A CPU always uses torch
    kernel: str = one_of("torch", "fla")

    def sizes(self, cfg: Config) -> tuple[int, int, int]:
        """Return the heads, the channels of each, and the size of the state."""
        width = cfg.model.model_dim // cfg.model.num_heads
        channels = self.head_channels or width
        return self.expand * cfg.model.model_dim // channels, channels, self.state or width

    def check(self, cfg: Config) -> None:
        """Refuse layers that the model does not have, heads that do not fit, and the compiler with fla."""
        count, inner = cfg.model.num_layers, self.expand * cfg.model.model_dim
        if wrong := [layer for layer in self.layers if not -count <= layer < count]:
            raise GolfError(f"tech.mamba2.layers names layer {wrong[0]}: the model has {count}.")
        if not self.layers or len({layer % count for layer in self.layers}) < len(self.layers):
            raise GolfError(f"tech.mamba2.layers={self.layers} has to name different layers, at least one.")
        if inner % self.sizes(cfg)[1]:
            raise GolfError(f"tech.mamba2.head_channels={self.head_channels} has to divide the {inner} channels.")
        if self.kernel == "fla" and cfg.launch.device == "cuda" and cfg.launch.compile != "off":
            raise GolfError("tech.mamba2.kernel=fla cannot be compiled: set launch.compile=off, or kernel=torch.")

    def replaced_modules(self, cfg: Config) -> tuple[str, ...]:
        """Return the attention of the chosen layers."""
        return tuple(f"blocks.{layer % cfg.model.num_layers}.attn" for layer in self.layers)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Replace the attention of the chosen layers, with whatever other techniques have set in it."""
        for layer in self.layers:
            model.blocks[layer].attn = None
            set_slot(model.blocks[layer], "attn", Mamba2(cfg, self), self.name)
