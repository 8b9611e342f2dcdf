"""CaseOps data of others: operators that count bytes, text that was scored, and validation documents in training."""

import json
from pathlib import Path

import numpy as np
import pytest

from golf.field.audit import Audit
from golf.field.byte_audit import audit_bytes
from golf.field.sidecar_audit import check_preparation, document_bounds
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset
from golf.training.data.shards import open_shard, write_shard
from tests.support import make_text

TEXTS = [make_text(4, seed).title() for seed in range(20)]


@pytest.fixture
def made(tmp_path: Path) -> OwnDataset:
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return make_dataset([tmp_path / "docs.jsonl"], tmp_path, Recipe("caps", 300, caseops=True, val_docs=5))


def audited(made: OwnDataset, *, text: Path | None = None, scored: tuple[int, float] | None = None) -> Audit:
    found = Audit(scored=scored)
    audit_bytes(made.folder.parent / "no_folder", made.tokenizer_path, made.folder, text, found)
    return found


def test_exact_sidecars_are_in_order(made: OwnDataset, tmp_path: Path) -> None:
    size = sum(len(text.encode()) for text in TEXTS[:5])
    found = audited(made, text=tmp_path / "docs.jsonl", scored=(made.val_tokens - 1, size))
    assert found.faults == [] and found.look_at == []
    assert any(f"counts {size:,} bytes for {size:,} of decoded text (+0.00%)" in line for line in found.in_order)
    assert any("of raw text (+0.00%) in 20 documents" in line for line in found.in_order)
    assert any(f"are of the {size:,} bytes that the shards hold" in line for line in found.in_order)


def test_three_bytes_an_operator_are_a_fault(made: OwnDataset) -> None:
    tokens, path = open_shard(made.folder / "caps_val_000000.bin"), made.folder / "caps_val_bytes_000000.bin"
    counts = np.where(np.isin(tokens, [4, 5, 6, 7]), 3, open_shard(path))
    path.unlink()
    write_shard(path, counts)
    (fault,) = audited(made).untrue
    assert f"counts {3 * np.isin(tokens, [4, 5, 6, 7]).sum():,} bytes on" in fault and "a flattered score" in fault


def test_logs_of_other_bytes_and_missing_sidecars_are_faults(made: OwnDataset) -> None:
    size = sum(len(text.encode()) for text in TEXTS[:5])
    (fault,) = audited(made, scored=(made.val_tokens - 1, 1.09 * size)).untrue
    assert "too many, a flattered score" in fault
    (made.folder / "caps_val_bytes_000000.bin").unlink()
    (fault,) = audited(made).untrue
    assert "has no sidecar caps_val_bytes_000000.bin" in fault


def test_the_preparations_default_split_is_a_fault(made: OwnDataset, tmp_path: Path) -> None:
    for name, body in (("", 1), ("bytes_", 0)):
        path = made.folder / f"caps_val_{name}000000.bin"
        path.unlink()
        write_shard(path, np.full(10_000, body))
    (fault,) = audited(made).against_rules
    assert "validates on 10,000 documents" in fault and "the other 40,000" in fault
    found = Audit()
    (tmp_path / "prepare.py").write_text('ap.add_argument(\n    "--val-docs",\n    type=int, default=10_000)')
    (tmp_path / "other.py").write_text('ap.add_argument("--val-docs", default=50_000)')
    check_preparation(tmp_path, found)
    (remark,) = found.look_at
    assert remark.startswith("prepare.py takes 10,000 validation documents by default")


def test_shards_without_a_document_start_have_no_bounds() -> None:
    """Shards whose documents begin with another token than the tokenizer's BOS once ended in a traceback."""
    assert document_bounds(np.array([5, 6, 7]), 1) == []
    assert document_bounds(np.array([1, 6, 1, 7]), 1) == [(0, 2), (2, 4)]
