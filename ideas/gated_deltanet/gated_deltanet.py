"""Gated DeltaNet: some layers keep a state of fixed size, which decays and is corrected towards each token's value."""

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
from ideas.gated_deltanet.fla_kernel import delta_rule_of_fla


def in_chunks(t: Tensor, chunk: int) -> Tensor:
    """Return `t` `[B, T, H, …]` as `[B, H, n, C, …]`, the last chunk filled up with zeros."""
    t = F.pad(t, [0, 0] * (t.ndim - 2) + [0, -t.size(1) % chunk])
    return t.unflatten(1, (-1, chunk)).movedim(3, 1)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, gates: tuple[Tensor, Tensor], starts: Tensor, chunk: int) -> Tensor:
    """Return o_t = S_tᵀ q_t `[B, T, H, V]` for S_t = e^{g_t} S_{t−1} + k_t ⊗ β_t (v_t − e^{g_t} S_{t−1}ᵀ k_t).

    `q` and `k` are `[B, T, H, K]`, `v` is `[B, T, H, V]`, `gates` are g and β `[B, T, H]`. S is zero before the first
    token of each piece, see `starts_of`. Within a chunk the corrections are a triangular system of equations.
    """
    tokens, length = q.size(1), min(chunk, q.size(1))
    q, k, v, g, beta, starts = (in_chunks(t, length) for t in (q, k, v, *gates, starts[..., None]))
    total = g.cumsum(-1)
    seen = (starts[..., :, None] == starts[..., None, :]).tril()
    # Masked before the exponential: a later token's would overflow, and its gradient would be no number.
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~seen, float("-inf")).exp()
    # The state before a chunk acts on the tokens of the piece that it comes from.
    before = F.pad(starts[..., :-1, -1], (1, 0))[..., None]
    carried = (total.exp() * (starts == before))[..., None]
    learn = beta[..., None]
    system = (learn * (k @ k.mT) * decay).tril(-1)
    right = learn * torch.cat((v, carried * k), -1)
    fresh, known = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True).split(
        (v.size(-1), k.size(-1)), -1
    )
    states, written = [], []
    state, last = q.new_zeros(*q.shape[:2], q.size(-1), v.size(-1)), decay[..., -1, :, None]
    for i in range(q.size(2)):
        states.append(state)
        written.append(fresh[:, :, i] - known[:, :, i] @ state)
        state = carried[:, :, i, -1:] * state + (last[:, :, i] * k[:, :, i]).mT @ written[-1]
    o = (carried * q) @ torch.stack(states, 2) + (q @ k.mT * decay) @ torch.stack(written, 2)
    return o.movedim(1, 3).flatten(1, 2)[:, :tokens]


def expand_elu(x: Tensor) -> Tensor:
    """Return elu(x) + 1, which is above zero."""
    return F.elu(x) + 1


class GatedDeltaNet(nn.Module):
    """W_o(n(o) ⊙ SiLU(W_z x)), with o of `delta_rule` and n an RMS norm for each head."""

    def __init__(self, cfg: Config, tech: GatedDelta):
        super().__init__()
        dim, self.tech, self.width = cfg.model.model_dim, tech, embed_dtype(cfg.model.compute_dtype).itemsize
        self.heads, self.key_heads = tech.heads_of(cfg)
        head_dim = dim // cfg.model.num_heads
        self.key_dim, self.value_dim = tech.key_channels or head_dim, tech.value_channels or head_dim
        keys, values = self.key_heads * self.key_dim, self.heads * self.value_dim
        self.c_q, self.c_k = CastedLinear(dim, keys), CastedLinear(dim, keys)
        self.c_v, self.c_z = CastedLinear(dim, values), CastedLinear(dim, values)
        self.proj = CastedLinear(values, dim, zero_init=True)
        self.c_gates = CastedLinear(dim, 2 * self.heads)  # rows of g, then of β
        # Rows are taps, the token's own first; columns are the channels of queries, keys and values.
        self.filters = nn.Parameter(torch.empty(tech.taps, 2 * keys + values).uniform_(-1, 1) / math.sqrt(tech.taps))
        drawn = torch.empty(2, self.heads).uniform_(0, 1)
        fastest = 16 * drawn[0].clamp(min=1e-3) if tech.decays == "uniform" else (drawn[0] * math.log(8)).exp()
        self.decay_log = nn.Parameter(fastest.log())
        step = (math.log(0.001) + drawn[1] * math.log(100)).exp()
        # softplus of it is the step, between 0.001 and 0.1.
        self.step_bias = nn.Parameter(step + (-torch.expm1(-step)).log())

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Return the output `[B, T, d]` for the normalised input `x`."""
        active, starts = context.active, starts_of(context)
        projected = torch.cat([part(x, active) for part in (self.c_q, self.c_k, self.c_v)], -1)
        mixed = short_convolution(projected, self.filters, starts)
        keys = self.key_heads * self.key_dim
        # The state and its gates are float32, whatever the activations are.
        wide = torch.promote_types(x.dtype, torch.float32)
        q, k, v = (
            t.unflatten(-1, (heads, -1)).to(wide)
            for t, heads in zip(
                mixed.split((keys, keys, mixed.size(-1) - 2 * keys), -1),
                (self.key_heads, self.key_heads, self.heads),
                strict=True,
            )
        )
        feature = F.silu if self.tech.features == "silu" else expand_elu
        q, k, v = F.normalize(feature(q), dim=-1) / math.sqrt(self.key_dim), F.normalize(feature(k), dim=-1), F.silu(v)
        q, k = (t.repeat_interleave(self.heads // self.key_heads, dim=2) for t in (q, k))
        steps, learn = self.c_gates(x.to(wide), active).chunk(2, -1)
        gates = -self.decay_log.exp() * F.softplus(steps + self.step_bias), learn.sigmoid()
        if self.tech.kernel == "fla" and x.is_cuda:
            o = delta_rule_of_fla(q, k, v, gates, starts, x.dtype)
        else:
            o = delta_rule(q, k, v, gates, starts, self.tech.chunk)
        o = (rms_norm(o) if self.tech.norm else o).flatten(2).to(x.dtype)
        return self.proj(o * F.silu(self.c_z(x, active)), active)

    def flops_per_token(self, seq_len: int) -> float:
        """Return the forward operations of products for each token: two a weight, and those of the chunks."""
        chunk, k, v = min(self.tech.chunk, seq_len), self.key_dim, self.value_dim
        weights = sum(part.weight.numel() for part in self.children() if isinstance(part, nn.Linear))
        # K Kᵀ, Q Kᵀ and the scores times what is written; the triangular system; the state read twice and written once.
        scan = chunk * (4 * k + 2 * v) + chunk * (k + v) + 6 * k * v
        return 2 * weights + self.heads * scan * (-(-seq_len // chunk) * chunk / seq_len)

    def kept_bytes_per_token(self, seq_len: int) -> float:
        """Return the bytes for each token that eager training keeps for the backward pass; a compiler keeps fewer."""
        chunk, k, v = min(self.tech.chunk, seq_len), self.key_dim, self.value_dim
        mixed, values = self.filters.size(1), self.heads * v
        dim, keys = self.proj.out_features, mixed - values
        # Copies of each tensor, counted on saved tensors. Those of the chunks are float32.
        narrow = dim + self.tech.taps * mixed + keys + 5 * values
        wide = dim + 1.5 * keys + self.heads * (6 * chunk + 10 * k + 5.4 * v + 8 + 2 * k * v / chunk)
        return self.width * narrow + 4 * wide


@technique("gated_deltanet")
@dataclass
class GatedDelta(Technique):
    """Layers are counted from 0, or from the end if negative; the others keep their attention. Keys of fewer heads are
    shared as in grouped queries. PR #1895 has `features=elu`, `norm=false` and `decays=log_uniform`.
    """

    source = "arXiv 2412.06464; PR #1895"
    # After the hooks on attention, which act in the layers that keep theirs, and before initial values are drawn.
    phase = INITIAL_VALUES
    by_layer = True
    # The first takes the values of the first layer into all others, the second joins matrices that are not here.
    conflicts = ("value_residual", "fused_qkv")
    groups = (
        ("*.attn.c_z.weight", "matrix"),
        ("*.attn.c_gates.weight", "scalar"),
        ("*.attn.filters", "scalar"),
        ("*.attn.decay_log", "scalar"),
        ("*.attn.step_bias", "scalar"),
    )
    control_names = ("*.attn.c_gates.weight", "*.attn.filters", "*.attn.decay_log", "*.attn.step_bias")

    layers: list[int] = field(default_factory=lambda: [1])  # whose attention it replaces
    heads: int | None = number(None, at_least=1)  # heads of values; null = the attention's
    key_heads: int | None = number(None, at_least=1)  # heads of queries and keys; null = as many as of values
    key_channels: int | None = number(None, at_least=1)  # of a head; null = the attention's
    value_channels: int | None = number(None, at_least=1)  # of a head; null = the attention's
    taps: int = number(4, at_least=1)  # tokens that the short convolution mixes; 1: none but the token itself
    features: str = one_of("silu", "elu")  # of queries and keys before they get unit length; elu: elu + 1
    norm: bool = True  # RMS norm of each head's output before its gate
    decays: str = one_of("uniform", "log_uniform")  # of A at the start; uniform: from 0 to 16 | log_uniform: 1 to 8
    chunk: int = number(64, at_least=1)  # tokens whose corrections are solved at once
    # of a GPU; fla: flash-linear-attention, without the compiler. A CPU always uses torch
    kernel: str = one_of("torch", "fla")

    def heads_of(self, cfg: Config) -> tuple[int, int]:
        """Return the number of heads of values, and of queries and keys."""
        heads = self.heads or cfg.model.num_heads
        return heads, self.key_heads or heads

    def check(self, cfg: Config) -> None:
        """Refuse layers that the model does not have, heads that cannot be shared, and the compiler with fla."""
        count = cfg.model.num_layers
        if wrong := [layer for layer in self.layers if not -count <= layer < count]:
            raise GolfError(f"tech.gated_deltanet.layers names layer {wrong[0]}: the model has {count}.")
        if not self.layers or len({layer % count for layer in self.layers}) < len(self.layers):
            raise GolfError(f"tech.gated_deltanet.layers={self.layers} has to name different layers, at least one.")
        heads, key_heads = self.heads_of(cfg)
        if heads % key_heads:
            raise GolfError(f"tech.gated_deltanet.key_heads={key_heads} has to divide the {heads} heads of values.")
        if self.kernel == "fla" and cfg.launch.device == "cuda" and cfg.launch.compile != "off":
            raise GolfError(
                "tech.gated_deltanet.kernel=fla cannot be compiled: set launch.compile=off, or kernel=torch."
            )

    def replaced_modules(self, cfg: Config) -> tuple[str, ...]:
        """Return the attention of the chosen layers."""
        return tuple(f"blocks.{layer % cfg.model.num_layers}.attn" for layer in self.layers)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Replace the attention of the chosen layers, with whatever other techniques have set in it."""
        for layer in self.layers:
            model.blocks[layer].attn = None
            set_slot(model.blocks[layer], "attn", GatedDeltaNet(cfg, self), self.name)
