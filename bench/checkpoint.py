"""The weights of a finished run, for studies that store them in several ways and measure the gap of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.artifact.quant.fitting import with_steps
from golf.lab.artifacts.quant_gap import stored_config
from golf.run.folder import RunFolder
from golf.settings.config import Config, QuantConfig
from golf.training.data.dataset import open_dataset
from golf.training.loop.tuning import log_likely
from golf.training.model.build import build_scored_model
from golf.training.model.weights import read_weights
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer


class Point(NamedTuple):
    """One stored form of one checkpoint."""

    way: str
    step: float  # multiple of the form's own steps
    artifact_bytes: int
    gap_bpb: float
    divergence: float = 0.0  # from the trained model, in nats per token


class Checkpoint:
    """Weights of a run with a scorer in float32; text for calibration is training text, scores are of validation text.

    `tokens` are calibrated on, and as many are scored if `scored_tokens` is None.
    """

    def __init__(self, run: Path, tokens: int, scored_tokens: int | None = None):
        folder = RunFolder(run)
        self.tokens = tokens
        self.cfg = _on_this_cpu(folder.read_config())
        dataset = open_dataset(self.cfg)
        self.dataset = dataclasses.replace(dataset, validation=dataset.validation[: (scored_tokens or tokens) + 1])
        self.scorer = Scorer(self.cfg, self.dataset, Ranks())
        stored = read_weights(folder.weights)
        # A file of weights sorts its names, and codecs compress a different order to different bytes.
        self.weights = {name: stored[name] for name in self.scorer.model.state_dict()}
        self.before_bpb = self.scorer(self.weights).val_bpb

    def quant(self, choice: str, step: float = 1.0) -> QuantConfig:
        """Return the settings of `choice`, a preset's name and overrides, with all steps multiplied by `step`."""
        return with_steps(stored_config(f"{choice} quant.calibration.tokens={self.tokens}", self.cfg).quant, step)

    def gap_bpb(self, restored: Mapping[str, Tensor]) -> float:
        """Return how many bits per byte the `restored` weights score above the trained ones."""
        return self.scorer(restored).val_bpb - self.before_bpb

    @torch.no_grad()
    def divergence(self, restored: Mapping[str, Tensor]) -> float:
        """Return the mean divergence of the model with `restored` weights from the trained one, in nats per token.

        The text is the scored one in rows of the training's length, without a rest. Chance moves it less than the gap,
        of which it leaves out what the trained model itself does not predict.
        """
        stored, trained = (build_scored_model(self.cfg, torch.device("cpu")) for _ in range(2))
        stored.load_state_dict(restored)
        trained.load_state_dict(self.weights)
        length = self.cfg.data.train_seq_len
        text = torch.from_numpy(self.dataset.validation[:-1].astype("int64"))
        rows = text[: len(text) // length * length].view(-1, length)
        total = 0.0
        for ids in rows.split(8):
            found, wanted = log_likely(stored, ids), log_likely(trained, ids)
            total += float(F.kl_div(found, wanted, reduction="sum", log_target=True))
        return total / rows.numel()


def _on_this_cpu(cfg: Config) -> Config:
    return dataclasses.replace(
        cfg,
        model=dataclasses.replace(cfg.model, attention="sdpa"),
        eval=dataclasses.replace(cfg.eval, dtype="fp32", val_batch_tokens=16_384),
        launch=dataclasses.replace(cfg.launch, nproc=1, device="cpu", compile="off"),
    )
