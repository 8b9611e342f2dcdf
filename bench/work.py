"""Memory traffic of a training step: the bytes that every implementation of the same arithmetic moves."""

from __future__ import annotations

from torch import nn

from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.layers import embed_dtype

MASTER_BYTES = 4
MUON_PASSES, ADAM_PASSES = 5, 7  # read gradient, state and weight, write state and weight; Adam has two states


def step_bytes(cfg: Config, model: GPT) -> float:
    """Return the bytes that one optimizer step has to move, if nothing stays in a cache between two uses.

    Every micro-batch reads each matrix twice (forward, backward) and writes its gradient once; the inputs of every
    matrix are written forward and read backward; the optimizer passes over weights, gradients and its state.
    """
    width = embed_dtype(cfg.model.compute_dtype).itemsize
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    weights = sum(m.weight.numel() for m in layers)
    # The tied head is no nn.Linear, and reads the hidden state, too.
    inputs = sum(m.in_features for m in layers) + cfg.model.model_dim
    activations = 2.0 * width * inputs * cfg.data.train_batch_tokens
    params = sum(p.numel() for p in model.parameters())
    passes = cfg.data.micro_batches * (2 * width + MASTER_BYTES) * params
    update = MASTER_BYTES * (MUON_PASSES * weights + ADAM_PASSES * (params - weights))
    return activations + passes + update
