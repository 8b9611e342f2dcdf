"""A model as a configuration asks for it: the baseline, then the edits of the selected techniques."""

from __future__ import annotations

import torch

from golf.config import Config, techniques
from golf.model.gpt import GPT


def build_model(cfg: Config) -> GPT:
    """The model of `cfg` on the CPU, initialised from `cfg.seed` without touching the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cfg.seed)
        model = GPT(cfg.model)
        for technique in techniques(cfg):
            technique.edit_model(model, cfg)
    return model
