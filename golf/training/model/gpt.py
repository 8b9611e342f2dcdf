"""The baseline language model: a U-shaped stack of attention/MLP blocks over a tied embedding.

Parameter names are those of the public scripts, so that their checkpoints load here and ours there. Techniques edit a
model once, at construction, through the attributes that the classes list. Other techniques leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.settings.config import ModelConfig, mlp_hidden
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.eager_cpu import LARGEST_CAP, softcapped_losses, suits_eager_cpu
from golf.training.model.layers import MLP, CastedLinear, Context, RMSNorm, embed_dtype, in_order
from golf.training.model.rotary import Rotary
from golf.training.model.route import Route, count_rows, route_through

EmbeddingHook = Callable[[Tensor, Tensor], Tensor]
State = Any  # the residual stream between blocks: a tensor [B, T, d], or several


def plain_route(cfg: ModelConfig) -> Route:
    """Return the route through all layers once, in order."""
    return route_through(range(cfg.num_layers), skips=cfg.unet_skips)


def attention_then_mlp(block: Block, x: Tensor, context: Context) -> Tensor:
    """Run the attention on `x` `[B, T, d]` mixed with the embedding output, then the MLP on the sum."""
    x = block.mix(x, context)
    # addcmul, because eager code would otherwise write the product to memory before adding it.
    x = torch.addcmul(x, block.attn_scale.to(x.dtype), block.attend(x, context))
    return torch.addcmul(x, block.mlp_scale.to(x.dtype), block.feed(x, context))


class Block(nn.Module):
    """Attention and MLP around a residual stream that can be mixed with the embedding output again.

    Slots: `meet` (block, stream, context, … → stream: how attention and MLP meet), `mlp`, and the fields of `attn_norm`
    and `mlp_norm`.
    """

    def __init__(self, cfg: ModelConfig, attention: type[CausalSelfAttention] = CausalSelfAttention):
        super().__init__()
        dim = cfg.model_dim
        self.attn = attention(cfg)
        self.mlp: nn.Module = MLP(dim, mlp_hidden(cfg))
        self.attn_norm, self.mlp_norm = RMSNorm(), RMSNorm()
        self.attn_scale = nn.Parameter(torch.ones(dim))
        self.mlp_scale = nn.Parameter(torch.ones(dim))
        self.resid_mix = nn.Parameter(torch.stack((torch.ones(dim), torch.zeros(dim))))
        self.meet: Callable[..., Any] = attention_then_mlp

    def forward(self, x: State, context: Context, *weights: Tensor) -> State:
        """Return the stream after this block. `weights` are those of the stream, if it has some for each block."""
        return self.meet(self, x, context, *weights)

    def mix(self, x: Tensor, context: Context) -> Tensor:
        """Return `x` `[B, T, d]` mixed with the embedding output, by two weights a channel."""
        mix = self.resid_mix.to(x.dtype)
        return torch.addcmul(mix[0] * x, mix[1], context.x0)

    def attend(self, x: Tensor, context: Context) -> Tensor:
        """Return the attention's output `[B, T, d]` for `x`, before `attn_scale`."""
        return self.attn(self.attn_norm(x), context)

    def feed(self, x: Tensor, context: Context) -> Tensor:
        """Return the MLP's output `[B, T, d]` for `x`, before `mlp_scale`."""
        return self.mlp(self.mlp_norm(x), context.active)

    def mlps(self) -> list[nn.Module]:
        """Return the MLP of every visit to this block in one pass."""
        return [self.mlp]


def join_weighted(model: GPT, x: Tensor, skip: Tensor, row: int) -> Tensor:
    """Add the stored output `skip`, weighted per channel by a row of the skip weights."""
    return x + model.skip_row("skip_weights", row).to(x.dtype) * skip


class Stream:
    """The residual stream between the blocks: one tensor `[B, T, d]`. A technique may set another kind."""

    def visit(self, model: GPT, x: State, skip: State | None, context: Context) -> State:
        """Return the stream after the block of `context.visit`, before which `skip` is joined."""
        if skip is not None:
            x = model.join_skip(model, x, skip, context.visit.row)
        return model.run_block(x, context)

    def end(self, model: GPT, x: State) -> Tensor:
        """Return the stream that the final norm reads, `[B, T, d]`."""
        return x


def capped_losses(logits: Tensor, target_ids: Tensor, cap: float) -> Tensor:
    """Return the nats `[...]` float32 of targets `[...]` under raw logits `[..., V]` that are capped to ±`cap`."""
    return nats_under(capped(logits, cap), target_ids)


def nats_under(logits: Tensor, target_ids: Tensor) -> Tensor:
    """Return the nats `[...]` float32 of targets `[...]` under capped logits `[..., V]`."""
    # The softmax is in float32, because scores differ by less than bf16 can express.
    flat = logits.float().flatten(0, -2)
    return F.cross_entropy(flat, target_ids.flatten(), reduction="none").view(target_ids.shape)


def capped(logits: Tensor, cap: float) -> Tensor:
    """Return cap·tanh(logits / cap), which is within ±`cap`."""
    return cap * torch.tanh(logits / cap)


def is_replaced(model: GPT) -> bool:
    """Tell whether a technique has put something in the place of the loss or of the methods that lead to it."""
    own = (getattr(getattr(model, name), "__func__", None) is getattr(GPT, name) for name in ("nats", "head"))
    return model.losses is not capped_losses or not all(own)


def caps_apart(model: GPT) -> bool:
    """Tell whether techniques change what becomes of the raw logits, for which there is no faster form."""
    return bool(model.before_cap) or model.cap is not capped


def turn_from_row_start(model: GPT, ids: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rotary tables `(cos, sin)` `[1, T, 1, R/2]` for `ids` `[B, T]`, with the positions of a row."""
    return model.rotary.tables(ids.size(1), like=like)


def mean_nats(model: GPT, input_ids: Tensor, target_ids: Tensor, active: tuple[str, ...] | None) -> Tensor:
    """Return the mean of the nats that a score takes, a float32 scalar."""
    return model.token_losses(input_ids, target_ids, active).mean()


class GPT(nn.Module):
    """Token ids `[B, T]` to logits `[B, T, V]`; called with targets too, it gives the mean loss in nats.

    Slots: `tok_emb`, `stream`, `join_skip`, `turns` (model, ids, like → rotary tables), `final_norm`, whose output the
    head multiplies with its matrix, `cap` (logits, cap → capped logits), `read` (model, ids, active → what `passed`
    returns), `objective` (model, ids, targets, active → training loss), and the fields of `rotary`, `embed_norm` and
    `final_norm`. `losses` (raw logits, targets, cap → nats) is for the kernel of `launch.loss_kernel` alone. Hooks by
    phase: `before_norm` and `after_norm` (x, ids → x, around the norm of the embedding output; terms are added before
    tokens are mixed). `before_cap` (model, raw logits → raw logits) run in order. `shared_terms` are functions of
    ids, evaluated once a pass into `Context.shared`. `active` names the late switches that are on; without it a call
    uses `active_in_scoring`, the end of training.
    """

    has_late_rows = False  # skip weights that get no gradient before a late switch

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.cfg, self.route = cfg, plain_route(cfg)
        self.tok_emb = nn.Embedding(cfg.vocab_size, cfg.model_dim)
        self.add_blocks()
        if cfg.unet_skips:
            self.add_skip_rows("skip_weights", 1.0)
        self.lm_head = None if cfg.tie_embeddings else CastedLinear(cfg.model_dim, cfg.vocab_size, zero_init=True)
        if cfg.tie_embeddings:
            # torch's own N(0, 1) is far too large for a matrix that makes the logits, too.
            nn.init.normal_(self.tok_emb.weight, std=cfg.tied_embed_init_std)
        # Every activation has the embedding's dtype, because linear layers cast their weights to what they read.
        self.tok_emb.to(embed_dtype(cfg.compute_dtype))
        self.rotary = Rotary(cfg.model_dim // cfg.num_heads, cfg.rope_base)
        self.turns: Callable[[GPT, Tensor, Tensor], tuple[Tensor, Tensor]] = turn_from_row_start
        self.losses: Callable[[Tensor, Tensor, float], Tensor] = capped_losses
        self.cap: Callable[[Tensor, float], Tensor] = capped
        self.read: Callable[..., tuple[Tensor, dict[str, Tensor]]] = GPT.pass_once
        self.objective: Callable[..., Tensor] = mean_nats
        self.before_cap: list[Callable[[GPT, Tensor], Tensor]] = []
        self.embed_norm, self.final_norm = RMSNorm(), RMSNorm()
        self.before_norm: dict[str, list[EmbeddingHook]] = {"add": [], "mix": []}
        self.after_norm: dict[str, list[EmbeddingHook]] = {"add": [], "mix": []}
        self.shared_terms: dict[str, Callable[[Tensor], Tensor]] = {}
        self.stream = Stream()
        self.join_skip: Callable[[GPT, Tensor, Tensor, int], Tensor] = join_weighted
        self.active_in_scoring: tuple[str, ...] = ()
        self.piece_tokens = 0  # most tokens of a document that see each other, if attention stops at a document's end
        self.separators: tuple[Callable[..., Any], ...] = ()  # the functions that make it stop there

    def add_blocks(self) -> None:
        """Add the blocks, which are visited in the order of `route`."""
        self.blocks = nn.ModuleList(Block(self.cfg) for _ in range(self.cfg.num_layers))

    def add_skip_rows(self, name: str, value: float) -> None:
        """Add the parameter `name` `[joins, d]`, a row for every join of the route, filled with `value`."""
        self.register_parameter(name, nn.Parameter(torch.full((count_rows(self.route), self.cfg.model_dim), value)))

    def skip_row(self, name: str, row: int) -> Tensor:
        """Return a row `[d]` of a parameter that `add_skip_rows` added."""
        return getattr(self, name)[row]

    @property
    def controls(self) -> list[Block]:
        """Return the modules whose control vectors, norms and hooks the visits use."""
        return [*self.blocks]

    def route_when(self, active: Sequence[str]) -> Route:
        """Return the order of the blocks while the late switches `active` are on."""
        return self.route

    def run_block(self, x: State, context: Context, *weights: Tensor) -> State:
        """Return the stream after the block of `context.visit`. `weights` are those of the stream for the block."""
        return self.blocks[context.visit.block](x, context, *weights)

    def forward(self, input_ids: Tensor, target_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return the mean cross-entropy in nats per token (float32) of `target_ids` `[B, T]` given `input_ids`."""
        return self.objective(self, input_ids, target_ids, active)

    def token_losses(self, input_ids: Tensor, target_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return the cross-entropy in nats of every target, `[B, T]` float32."""
        return self.losses_of(self.hidden(input_ids, active), target_ids, active or ())

    def losses_of(self, x: Tensor, target_ids: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        """Return the nats `[...]` float32 of targets `[...]` given normalised hidden states `[..., d]`."""
        cap = self.cfg.logit_softcap
        if suits_eager_cpu(x) and cap <= LARGEST_CAP and not (caps_apart(self) or is_replaced(self)):
            return softcapped_losses(x, self.head_weight(active).to(x.dtype), target_ids, cap)
        return self.nats(self.head(x, active), target_ids)

    def nats(self, raw_logits: Tensor, target_ids: Tensor) -> Tensor:
        """Return the nats `[...]` float32 of targets `[...]` given raw logits `[..., V]`."""
        if caps_apart(self):
            return nats_under(self.softcap(raw_logits), target_ids)
        return self.losses(raw_logits, target_ids, self.cfg.logit_softcap)

    def logits(self, input_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return next-token logits `[B, T, V]` in the compute dtype, softly capped to ±`logit_softcap`."""
        return self.softcap(self.head(self.hidden(input_ids, active), active or ()))

    def head(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        """Return the raw logits `[..., V]` of normalised hidden states `[..., d]`."""
        return F.linear(x, self.head_weight(active).to(x.dtype))

    def head_weight(self, active: tuple[str, ...] = ()) -> Tensor:
        """Return the head's matrix `[V, d]`, which is the embedding's if they are tied."""
        return self.tok_emb.weight if self.lm_head is None else self.lm_head.edited_weight(active)

    def scored_weights(self) -> dict[str, Tensor]:
        """Return the state dict without what training alone needs: what is scored and exported."""
        return dict(self.state_dict())

    def softcap(self, logits: Tensor) -> Tensor:
        """Return the logits `[..., V]` that probabilities are made of, given raw ones."""
        for edit in self.before_cap:
            logits = edit(self, logits)
        return self.cap(logits, self.cfg.logit_softcap)

    def hidden(self, input_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return the normalised output of the last block, `[B, T, d]`."""
        return self.passed(input_ids, active)[0]

    def passed(self, input_ids: Tensor, active: tuple[str, ...] | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what `hidden` returns, and what layers have left in `Context.shared`."""
        return self.read(self, input_ids, active)

    def pass_once(self, input_ids: Tensor, active: tuple[str, ...] | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what `passed` returns, by one run through the blocks."""
        active = self.active_in_scoring if active is None else active
        x: State = self.stream_start(input_ids)
        cos, sin = self.turns(self, input_ids, x)
        shared: dict[str, Tensor] = {}
        for name, term in self.shared_terms.items():
            shared[name] = term(input_ids)
        context = Context(input_ids, x, cos, sin, shared, active)
        stored: dict[int, State] = {}
        for i, visit in enumerate(self.route_when(active)):
            # An output is joined once, so it is not kept any longer.
            skip = None if visit.joins is None else stored.pop(visit.joins)
            x = self.stream.visit(self, x, skip, context._replace(visit=visit))
            if visit.stores:
                stored[i] = x
        return self.final_norm(self.stream.end(self, x)), shared

    def stream_start(self, input_ids: Tensor) -> Tensor:
        """Return the residual stream before the first block, `[B, T, d]`."""
        x = self.tok_emb(input_ids)
        for edit in in_order(self.before_norm):
            x = edit(x, input_ids)
        x = self.embed_norm(x)
        for edit in in_order(self.after_norm):
            x = edit(x, input_ids)
        return x
