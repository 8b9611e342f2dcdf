"""Losses against counts by a loop, and against the scores of a model."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import golf
from golf.training.data.orders import Units

TEXT = np.random.default_rng(0).integers(0, 1024, (12, 9)).astype(np.uint16) % 7
CHOSEN = ["model=4l", "scale=laptop", "data.loader=shuffled", "model.model_dim=32", "model.num_heads=2"]
CHOSEN += ["model.num_kv_heads=1", "model.compute_dtype=fp32", "data.train_seq_len=8"]


def units(number: int) -> Units:
    return Units(number, (1,), np.full(12, 8), TEXT.__getitem__)


@pytest.mark.parametrize("hardest_first", [False, True])
def test_bigram_losses(hardest_first: bool) -> None:
    cfg = golf.compose([*CHOSEN, "tech=[by_loss]", f"tech.by_loss.hardest_first={hardest_first}"])
    pairs = Counter((int(a), int(b)) for row in TEXT for a, b in pairwise(row))
    firsts = Counter(int(a) for row in TEXT for a in row[:-1])
    losses = [
        sum(math.log((firsts[int(a)] + 1024) / (pairs[int(a), int(b)] + 1)) for a, b in pairwise(row)) for row in TEXT
    ]
    found = cfg.tech["by_loss"].data_order(cfg)(units(0)).tolist()
    assert found == sorted(range(12), key=lambda place: -losses[place] if hardest_first else losses[place])


def test_losses_of_an_artifact(tmp_path: Path) -> None:
    plain = golf.compose([*CHOSEN, "quant.small_numel=256"])
    model = golf.build_model(plain)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    coded = golf.quantize(model.state_dict(), plain.quant)
    path = tmp_path / "artifact.golf"
    path.write_bytes(golf.pack(coded, plain.model, plain.quant, plain.tech))
    model.load_state_dict(golf.load(path).state_dict())
    ids = torch.from_numpy(TEXT.astype(np.int64))
    with torch.no_grad():
        losses = [model(row[None, :-1], row[None, 1:]).item() for row in ids]
    cfg = golf.compose([*CHOSEN, "quant.small_numel=256", "tech=[by_loss]", f"tech.by_loss.artifact={path}"])
    assert cfg.tech["by_loss"].data_order(cfg)(units(1)).tolist() == np.argsort(losses).tolist()
    other = golf.compose([*CHOSEN, "model.num_layers=3", "tech=[by_loss]", f"tech.by_loss.artifact={path}"])
    with pytest.raises(golf.GolfError, match="is of another model"):
        other.tech["by_loss"].data_order(other)(units(2))
