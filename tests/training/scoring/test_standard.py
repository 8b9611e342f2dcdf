"""The score against its definition, whatever the batches and ranks."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.bits import bits_per_byte
from golf.lab.corpora.own_text import OwnDataset
from golf.settings.config import Config
from golf.training.data.byte_tables import ByteTables
from golf.training.data.dataset import open_dataset
from golf.training.model.build import build_model
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import score
from golf.training.scoring.standard import score_standard
from golf.training.scoring.tally import Tally
from tests.support import compose, tiny_overrides

TABLES = ByteTables(
    base_bytes=np.arange(50, dtype=np.int16), leading_space=np.arange(50) % 2 == 0, boundary=np.arange(50) < 3
)


def bytes_of(tokens: np.ndarray) -> np.ndarray:
    return TABLES.of(tokens[:-1], tokens[1:])


def fake_losses(inputs: Tensor, targets: Tensor) -> Tensor:
    """Any function of inputs and targets will do to see which pairs are scored."""
    return inputs * 0.01 + targets * 0.001


def test_published_figure() -> None:
    assert bits_per_byte(2.05945460, 62_021_632, 151_080_363) == pytest.approx(1.219725, abs=1e-6)


@pytest.mark.parametrize("batch_seqs", [1, 3, 100])
def test_every_target_is_scored_once(batch_seqs: int) -> None:
    tokens = np.random.default_rng(0).integers(0, 50, 8 * 7 + 1)
    found = score_standard(fake_losses, Tally(tokens, bytes_of(tokens), Ranks()), seq_len=8, batch_seqs=batch_seqs)
    nats = sum(0.01 * x + 0.001 * y for x, y in itertools.pairwise(tokens))
    byte_count = sum(y + (y % 2 == 0 and x >= 3) for x, y in itertools.pairwise(tokens))
    assert (found.tokens, found.bytes) == (56, byte_count)
    assert found.val_loss == pytest.approx(nats / 56, rel=1e-6)
    assert found.val_bpb == pytest.approx(nats / math.log(2) / byte_count, rel=1e-6)


def test_ranks_share_the_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.random.default_rng(0).integers(0, 50, 8 * 7 + 1)
    parts: list[tuple[float, ...]] = []

    def note(_: Ranks, *values: float) -> list[float]:
        parts.append(values)
        return list(values)

    monkeypatch.setattr(Ranks, "sum", note)
    for rank in range(3):
        score_standard(fake_losses, Tally(tokens, bytes_of(tokens), Ranks(rank, 3)), seq_len=8, batch_seqs=2)
    alone = score_standard(fake_losses, Tally(tokens, bytes_of(tokens), Ranks()), seq_len=8, batch_seqs=2)
    assert sum(p[1] for p in parts[:3]) == alone.tokens and sum(p[2] for p in parts[:3]) == alone.bytes
    assert sum(p[0] for p in parts[:3]) / alone.tokens == pytest.approx(alone.val_loss)


def test_score_of_a_model_is_its_loss_on_the_validation_split(tiny: OwnDataset, tiny_cfg: Config) -> None:
    model, dataset = build_model(tiny_cfg), open_dataset(tiny_cfg)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
        ids = torch.from_numpy(dataset.validation.astype(np.int64))
        expected = model(ids[:-1].view(-1, 32), ids[1:].view(-1, 32)).item()
    found = score(model, tiny_cfg)
    assert found.val_loss == pytest.approx(expected, rel=1e-5)
    assert found.tokens == dataset.validation.size - 1
    other_batch = compose([*tiny_overrides(tiny), "eval.val_batch_tokens=4096"])
    assert score(model, other_batch).val_bpb == pytest.approx(found.val_bpb, rel=1e-6)


def test_scoring_dtype_is_the_configurations(tiny: OwnDataset, tiny_cfg: Config) -> None:
    model = build_model(tiny_cfg)
    bf16 = score(model, compose([*tiny_overrides(tiny), "eval.dtype=bf16"])).val_loss
    fp32 = score(model, tiny_cfg).val_loss
    assert bf16 != fp32 and bf16 == pytest.approx(fp32, rel=0.01)
