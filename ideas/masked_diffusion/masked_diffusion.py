"""Masked diffusion: training fills in masked tokens from both sides, and scores go from left to right before masks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.settings.config import Config, changes_loss, changes_score, is_packed, uses_gptq
from golf.settings.fields import number
from golf.training.data.documents import BOS_ID
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.documents import PIECES, piece_starts
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context, embed_dtype
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

# SplitMix64, with factors as signed integers, which torch has.
STEP, MIX = 0x9E3779B97F4A7C15 - (1 << 64), ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))
PASS_TOKENS = 32_768  # of a pass of the chain


class MaskableEmbedding(nn.Embedding):
    """The table `weight` `[V, d]` of the tokens, and the row `mask` `[1, d]` behind it, whose id is V."""

    def __init__(self, table: nn.Embedding, std: float):
        super().__init__(table.num_embeddings, table.embedding_dim, _weight=table.weight)
        self.mask = nn.Parameter(torch.empty_like(table.weight[:1]))
        nn.init.normal_(self.mask, std=std)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of `ids`, `[..., d]`."""
        is_mask = ids == self.num_embeddings
        return torch.where(is_mask[..., None], self.mask, super().forward(ids.masked_fill(is_mask, 0)))


def begins_of(ids: Tensor) -> Tensor:
    """Return where in its row each token's document begins, int64 `[B, T]`. A masked beginning is none."""
    place = torch.arange(ids.size(1), device=ids.device)
    return torch.where(ids == BOS_ID, place, 0).cummax(1).values


def attend_both_ways(attn: CausalSelfAttention, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
    """Return softmax attention of every token to all of its row, or document, `[B, T, H, D]`.

    `q` is `[B, T, H, D]`, `k` and `v` `[B, T, K, D]`.
    """
    seen = None
    if PIECES in context.shared:
        begins = begins_of(context.ids)
        seen = (begins[:, :, None] == begins[:, None])[:, None]
    # Repeated heads, because not every kernel that takes a mask shares them.
    q, k, v = (t.repeat_interleave(q.size(2) // t.size(2), 2).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2)


def turn_from_begins(model: GPT, ids: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rotary tables `(cos, sin)` for `ids` `[B, T]`, with places in the row, or in the document."""
    tables = model.rotary.tables(ids.size(1), like=like)
    if PIECES not in model.shared_terms:
        return tables
    place = torch.arange(ids.size(1), device=ids.device) - begins_of(ids)
    cos, sin = (table[0, place] for table in tables)
    return cos, sin


def mixed(z: Tensor) -> Tensor:
    """Return the integers that SplitMix64 makes of `z`, int64 of any shape. Source: Steele, Lea and Flood 2014."""
    for shift, factor in MIX:
        z = (z ^ ((z >> shift) & ((1 << 64 - shift) - 1))) * factor
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def uniform(z: Tensor) -> Tensor:
    """Return numbers in [0, 1) of 24 bits, float32, made of the integers `z`."""
    return ((mixed(z) >> 40) & 0xFFFFFF).float() * 2.0**-24


def drawn(text: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
    """Return uniform numbers for the tokens of `text` `[B, T]`, and one `[1, 1]` for all of it.

    They follow from the text, the place in it and the number `draw` of the draw alone, on every rank and machine.
    """
    rows, tokens = text.shape
    place, row = (torch.arange(1, n + 1, device=text.device) * STEP for n in (tokens, rows))
    key = mixed(mixed(mixed(text + place).sum(1, keepdim=True) + row[:, None]) + draw)
    return uniform(key + place), uniform(key[:1])


def drawn_masks(text: Tensor, step: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Return which tokens of `text` `[B, T]` are masked, bool `[B, T]`, and each row's ratio t `[B, 1]`.

    t is uniform from `least` to 1 and stratified: the rows of a batch stand 1/B apart.
    """
    of_tokens, of_batch = drawn(text, step)
    spread = torch.arange(text.size(0), device=text.device)[:, None] / text.size(0)
    ratio = 1.0 - (1.0 - least) * ((of_batch + spread) % 1.0)
    return of_tokens < ratio, ratio


def masked_nats(
    model: GPT, ids: Tensor, targets: Tensor, masked: Tensor, active: tuple[str, ...] | None = None
) -> Tensor:
    """Return the nats `[B, T]` float32 of the `masked` targets `[B, T]` given the others, and 0 for the others.

    The first token of `ids` `[B, T]` is given and never masked; it is the last target of the row before.
    """
    read = torch.cat((ids[:, :1], targets.masked_fill(masked, model.tok_emb.num_embeddings)), 1)
    states = model.pass_once(read, active)[0][:, 1:]
    return model.losses_of(states, targets, active or ()).masked_fill(~masked, 0.0)


def masked_objective(
    model: GPT, ids: Tensor, targets: Tensor, active: tuple[str, ...] | None = None, *, least: float
) -> Tensor:
    """Return the mean over all targets of nats/t where they are masked, a float32 scalar: an estimate of a bound."""
    masked, ratio = drawn_masks(targets, model.get_buffer("mask_step"), least)
    return (masked_nats(model, ids, targets, masked, active) / ratio).mean()


def read_as_chain(model: GPT, ids: Tensor, active: tuple[str, ...] | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the states `[B, T, d]` that predict each next token from the tokens up to here, and masks behind them.

    Every state has a pass of its own: over its row, or its document's piece, up to here, and over masks up to the
    longest that either can be, and one more. So neither later tokens nor the length of a document are ever read.
    """
    mask, flat, place = model.tok_emb.num_embeddings, ids.flatten(), torch.arange(ids.numel(), device=ids.device)
    within = PIECES in model.shared_terms
    longest = model.piece_tokens if within else ids.size(1)
    starts = piece_starts(ids, longest) if within else place // longest * longest
    behind, states = torch.arange(longest + 1, device=ids.device), []
    for here, start in zip(*(t.split(max(1, PASS_TOKENS // (longest + 1))) for t in (place, starts)), strict=True):
        text = flat[(start[:, None] + behind).clamp(max=flat.numel() - 1)]
        read = torch.where(behind <= (here - start)[:, None], text, mask)
        hidden = model.pass_once(read, active)[0]
        states.append(hidden[torch.arange(len(here), device=ids.device), here - start + 1])
    return torch.cat(states).view(*ids.shape, -1), {}


@technique("masked_diffusion")
@dataclass
class MaskedDiffusion(Technique):
    """Training minimises (1/t)·Σ nats of the masked tokens; `val_bpb` is that of the chain, which is a probability."""

    source = "MDLM, arXiv 2406.07524; LLaDA, arXiv 2502.09992; PR #1106, #1403, #1699"
    groups = (("tok_emb.mask", "embed"),)
    # Another core or table, what looks tokens up by their ids, mixers that look back alone, terms of a training loss.
    conflicts = (
        *("attention_sink", "differential_attention", "window_sink", "factored_embedding"),
        *("bigram", "hnet", "smear", "value_embed", "gated_deltanet", "mamba2"),
        *("byte_weights", "chunk_ratio", "distillation", "focal_loss", "jepa", "label_smoothing", "multi_token"),
        "z_loss",
    )

    least_ratio: float = number(0.001, at_least=0, below=1)  # smallest share of a row that training masks

    def check(self, cfg: Config) -> None:
        """Refuse what would train or score by something else than this objective and this chain."""
        scores, matrices = "its score is the standard one", "calibration would take a pass for every token"
        refused = {
            "a technique of the training loss": (changes_loss(cfg), "it has an objective of its own: drop that one"),
            "a predictor": (changes_score(cfg), f"{scores}: drop it"),
            "eval.stride": (cfg.eval.stride > 0, f"{scores}: set eval.stride=0"),
            "eval.ttt": (cfg.eval.ttt.method != "off", f"{scores}: set eval.ttt.method=off"),
            "eval.tilt": (cfg.eval.tilt.method != "off", f"{scores}: set eval.tilt.method=off"),
            "packed rows": (is_packed(cfg), "they are too long to be read from both sides: set data.loader=shuffled"),
            "model.attention=varlen": (
                cfg.eval.documents and cfg.model.attention == "varlen",
                "its kernel looks back alone, and no other is left for documents: set model.attention=sdpa",
            ),
            "GPTQ": (uses_gptq(cfg.quant), f"{matrices}: choose another quant, such as quant=int8"),
            "quant.tune": (cfg.quant.tune.steps > 0, f"{matrices}: set quant.tune.steps=0"),
            "launch.compile=full": (
                cfg.launch.compile == "full",
                "all passes of its score would be one graph: set launch.compile=blocks",
            ),
        }
        for what, (is_on, why) in refused.items():
            if is_on:
                raise GolfError(f"tech.masked_diffusion does not go with {what}, because {why}.")

    def warnings(self, cfg: Config) -> list[str]:
        """Say what a validation costs."""
        every = cfg.eval.val_loss_every
        if not every:
            return []
        return [f"tech.masked_diffusion: a score takes a pass for every token; eval.val_loss_every={every} takes more."]

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the mask's row, let attention see both sides, and set objective and chain."""
        std = cfg.model.tied_embed_init_std if cfg.model.tie_embeddings else 1.0
        table = MaskableEmbedding(model.tok_emb, std).to(embed_dtype(cfg.model.compute_dtype))
        set_slot(model, "tok_emb", table, self.name)
        for block in model.blocks:
            set_slot(block.attn, "core", attend_both_ways, self.name)
        model.register_buffer("mask_step", torch.zeros((), dtype=torch.int64), persistent=False)
        set_slot(model, "objective", partial(masked_objective, least=self.least_ratio), self.name)
        set_slot(model, "read", read_as_chain, self.name)
        set_slot(model, "turns", turn_from_begins, self.name)

    def before_step(self, model: GPT, progress: Progress) -> None:
        """Write the number of the step, from which its masks follow."""
        model.get_buffer("mask_step").fill_(progress.step)
