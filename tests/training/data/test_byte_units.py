"""Text as bytes: ids, counts, splits, scores against an independent count, the audit, the exported script."""

import json
import math
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.field.audit import Audit
from golf.field.byte_audit import audit_bytes
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset
from golf.lab.plan.flops import challenge_tokens
from golf.launch.launcher import train_and_score
from golf.run.result import OK
from golf.submission.clean_env import clean_environment
from golf.submission.record_folder import requirements
from golf.submission.rehearsal import rehearse
from golf.submission.script.bundle import Bundle
from golf.training.data import byte_units
from golf.training.data.byte_tables import byte_tables
from golf.training.data.byte_units import ByteTokenizer, byte_tokenizer, check_bytes
from golf.training.data.dataset import open_dataset
from golf.training.data.documents import BOS_ID, train_tokenizer
from golf.training.data.shards import open_shard, write_shard
from golf.training.model.build import build_scored_model
from golf.training.ranks import ALONE
from golf.training.scoring.scorer import Scorer
from tests.support import compose, golf_command, make_text, parity, refusal, tiny_overrides

TEXTS = [f"{make_text(3, seed)} é 漢字 🏌️ \x00\x01\r\n" for seed in range(30)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "docs.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    return path


@pytest.fixture(scope="module")
def data(written: Path) -> OwnDataset:
    """Return the texts as bytes, every sixth for validation."""
    return make_dataset([written], written.parent, Recipe("raw", 1024, val_every=6, is_bytes=True))


def overrides(data: OwnDataset, *more: str) -> list[str]:
    """Return a run of a few steps on `data`."""
    own = [o for o in tiny_overrides(data) if not o.startswith("data.tokenizer_path")]
    return [*own, *(f"{key}={value}" for key, value in data.settings().items()), *more]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_comes_back_and_has_the_bytes_of_its_utf8(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = np.array([BOS_ID, *tokenizer.encode(text)])
    assert tokenizer.decode(ids.tolist()) == text and tokenizer.decode([ids.tolist(), []]) == [text, ""]
    assert [i - 4 for i in ids[1:]] == list(text.encode())
    assert byte_tables(byte_tokenizer(), 260).of(ids[:-1], ids[1:]).sum() == len(text.encode())
    check_bytes(ids.astype(np.uint16))


def test_only_bytes_count_after_whatever_token() -> None:
    tables = byte_tables(byte_tokenizer(), 260)
    previous, target = (side.ravel() for side in np.meshgrid(np.arange(260), np.arange(260)))
    assert np.array_equal(tables.of(previous, target), (target >= 4).astype(np.int16))


def test_pieces_are_those_of_a_sentencepiece_model_with_byte_fallback() -> None:
    model = sentencepiece.SentencePieceProcessor(model_proto=train_tokenizer(TEXTS, 350))
    mine = ByteTokenizer()
    assert [mine.id_to_piece(i) for i in range(4, 260)] == [model.id_to_piece(i) for i in range(4, 260)]
    for i in range(260):
        assert mine.is_byte(i) == model.is_byte(i) and mine.is_unknown(i) == model.is_unknown(i)
        assert mine.is_control(i) == model.is_control(i) and mine.is_unused(i) == model.is_unused(i)
    assert (mine.bos_id(), mine.unk_id()) == (model.bos_id(), model.unk_id())
    assert mine.piece_to_id("<0x41>") == model.piece_to_id("<0x41>") == 4 + 65 and mine.piece_to_id("é") == 3


def test_texts_of_a_public_preparation_have_the_bytes_of_their_utf8() -> None:
    rows = parity("caseops_a")[1]["rows"]
    assert len(rows) == 30
    tables, tokenizer = byte_tables(byte_tokenizer(), 260), ByteTokenizer()
    for row in rows:
        ids = np.array([BOS_ID, *tokenizer.encode(row["text"])])
        assert tables.of(ids[:-1], ids[1:]).sum() == len(row["text"].encode())


def test_shards_hold_bos_and_bytes(data: OwnDataset) -> None:
    val = open_shard(data.folder / "raw_val_000000.bin")
    expected = [token for text in TEXTS[5::6] for token in (1, *(byte + 4 for byte in text.encode()))]
    assert val.tolist() == expected and val.size == data.val_tokens
    assert data.train_tokens == sum(len(t.encode()) + 1 for i, t in enumerate(TEXTS) if i % 6 != 5)
    assert not (data.folder.parent.parent / "tokenizers").exists()


def test_the_command_prints_the_settings_that_train_on_it(written: Path, tmp_path: Path) -> None:
    done = golf_command(
        "data", "tokenize", str(written), "--name", "raw", "--root", str(tmp_path), "--bytes", "--val-every", "3"
    )
    assert done.returncode == 0, done.stderr
    printed = shlex.split(done.stdout.splitlines()[-1])[2:]
    cfg = compose(["scale=laptop", "data.train_seq_len=32", *printed])
    assert (cfg.data.units, cfg.data.vocab_size, cfg.data.tokenizer_path) == ("bytes", 260, "")
    assert open_dataset(cfg).validation.size > 1


def test_a_dataset_of_bytes_counts_and_names_the_same_text_as_one_of_pieces(
    data: OwnDataset, written: Path, tmp_path: Path
) -> None:
    pieces = make_dataset([written], tmp_path, Recipe("pieces", 330, val_every=6))
    of_pieces = open_dataset(compose([*tiny_overrides(pieces), "eval.documents=true"]))
    of_bytes = open_dataset(compose(overrides(data, "eval.documents=true")))
    text = "".join(TEXTS[5::6])
    assert of_bytes.target_bytes.sum() == of_pieces.target_bytes.sum() == len(text.encode())
    assert of_bytes.text_digest == of_pieces.text_digest is not None
    assert of_bytes.fingerprint != of_pieces.fingerprint


def losses_of(model: Any, ids: list[int]) -> list[float]:
    """Return the nats of every token of `ids` but the first, each with all before it."""
    row = torch.tensor([ids])
    return model.token_losses(row[:, :-1], row[:, 1:])[0].double().tolist()


@torch.no_grad()
@pytest.mark.parametrize("documents", [False, True])
def test_the_score_is_the_nats_over_the_bytes_of_the_text(documents: bool, data: OwnDataset) -> None:
    within = f"eval.documents={str(documents).lower()}"
    cfg = compose(overrides(data, within, "eval.stride=8"))
    model = build_scored_model(cfg, ALONE.device)
    for parameter in model.parameters():
        parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
    scorer = Scorer(cfg, open_dataset(cfg), ALONE)
    standard, sliding = scorer(model.state_dict()), scorer.sliding(model.state_dict())
    length = 32
    texts = [[1, *(byte + 4 for byte in text.encode())] for text in TEXTS[5::6]]
    stream = [token for text in texts for token in text]
    if not documents:
        texts = [stream[: (len(stream) - 1) // length * length + 1]]
    raw = sum(token >= 4 for text in texts for token in text)
    assert not documents or raw == sum(len(text.encode()) for text in TEXTS[5::6])
    # By document the BOS behind a document is its last target.
    rows = [[*text, 1] for text in texts[:-1]] + [texts[-1]]
    nats = sum(sum(losses_of(model, row[i : i + length + 1])) for row in rows for i in range(0, len(row) - 1, length))
    assert standard.val_bpb == pytest.approx(nats / math.log(2) / raw, rel=1e-6)
    assert standard.val_loss == pytest.approx(nats / (sum(map(len, rows)) - len(rows)), rel=1e-6)
    assert sliding.val_bpb / sliding.val_loss == pytest.approx(standard.val_bpb / standard.val_loss, rel=1e-9)


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        ([1, 5, 260], "token 260, which is neither BOS nor a byte"),
        ([1, 5, 2, 9], "token 2, which is neither BOS nor a byte"),
        ([1, 4 + 0xE9, 4 + 65, 5], "bytes that are no UTF-8 text"),
        ([1, 4 + 0xC3, 1, 4 + 0xA9], "bytes that are no UTF-8 text"),
    ],
)
def test_tokens_of_a_tokenizer_are_refused(tokens: list[int], fault: str, data: OwnDataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data.folder, tmp_path / "copy"))
    write_shard(folder / "raw_val_000000.bin", np.array([*tokens] * 20))
    with pytest.raises(GolfError, match=f"hold {fault}, so they are of a tokenizer.*--bytes`"):
        open_dataset(compose([*overrides(data), f"data.path={folder}"]))


def test_bytes_are_refused_as_pieces_of_a_tokenizer(data: OwnDataset, tiny: OwnDataset) -> None:
    with pytest.raises(GolfError, match=r"hold bytes and no pieces: set data\.units=bytes"):
        open_dataset(compose([*tiny_overrides(tiny), f"data.path={data.folder}"]))


def test_a_cut_within_the_last_character_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_units, "DECODED_TOGETHER", 2)
    ids = np.array([1, *ByteTokenizer().encode("a🏌é漢字")], dtype=np.uint16)
    for end in range(1, ids.size + 1):
        check_bytes(ids[:end])
    with pytest.raises(GolfError, match="no UTF-8"):
        check_bytes(np.delete(ids, 3))


@pytest.mark.parametrize(
    "chosen",
    [
        ["data=fineweb_sp1024", "data.units=bytes"],
        ["data=pydocs", "data.units=bytes"],
        ["data=pydocs_bytes", "data.vocab_size=256"],
        ["data=pydocs_bytes", "data.byte_sidecar=true"],
    ],
)
def test_data_of_a_tokenizer_is_refused_as_bytes(chosen: list[str]) -> None:
    said = refusal("scale=laptop", *chosen)
    assert said.startswith("data.units=bytes goes with data.vocab_size=260") and "golf data tokenize --bytes" in said


@pytest.mark.parametrize("more", [{"caseops": True}, {"tokenizer_path": Path("a.model")}])
def test_a_recipe_of_bytes_has_no_tokenizer(more: Any, written: Path, tmp_path: Path) -> None:
    with pytest.raises(GolfError, match="--bytes makes every byte a token"):
        make_dataset([written], tmp_path, Recipe("raw", 1024, is_bytes=True, **more))


def test_the_plan_counts_the_bytes_of_the_challenges_split() -> None:
    # 50,000 documents, each with a BOS.
    assert challenge_tokens(compose(["scale=laptop", "data=fineweb_bytes"])) == 151_080_000 + 50_000


def test_the_audit_counts_what_bytes_decode_to(data: OwnDataset, written: Path) -> None:
    for factor, faults in ((1.0, 0), (1.0413, 1)):
        val = open_shard(data.folder / "raw_val_000000.bin")
        audit = Audit(scored=(val.size - 1, (val[1:] >= 4).sum() * factor))
        audit_bytes(data.folder, Path("bytes"), data.folder, written, audit)
        assert len(audit.faults) == faults and audit.look_at == []
        assert any(f"bytes counts {sum(len(t.encode()) for t in TEXTS):,} bytes" in line for line in audit.in_order)


@pytest.mark.slow
@pytest.mark.parametrize("nproc", [1, 2])
def test_a_run_proves_its_scores(nproc: int, data: OwnDataset, runs: Path) -> None:
    more = ["model.within_documents=true", "data.loader=packed", "eval.documents=true", f"launch.nproc={nproc}"]
    result, folder = train_and_score(compose(overrides(data, *more, "eval.stride=16")))
    assert result.state == OK, result.reason
    assert "tokenizer_kind=bytes" in folder.train_log.read_text()
    for score in (result.pre_quant, result.post_quant, result.post_quant_sliding):
        # All targets but one BOS a document are bytes.
        texts = TEXTS[5::6]
        tokens, raw = sum(len(text.encode()) + 1 for text in texts) - 1, sum(len(text.encode()) for text in texts)
        assert score is not None
        assert score.val_bpb == pytest.approx(score.val_loss / math.log(2) * tokens / raw, rel=1e-12)


@pytest.mark.slow
def test_a_run_with_low_rank_test_time_training_ends_well(data: OwnDataset, runs: Path) -> None:
    result, _ = train_and_score(compose(overrides(data, "eval=ttt_lora", "quant=gptq_own_text")))
    assert result.state == OK, result.reason
    assert result.post_quant_ttt is not None and result.post_quant_ttt.val_bpb > 0


@pytest.mark.slow
def test_the_script_needs_no_tokenizer_and_no_sentencepiece(data: OwnDataset, tmp_path: Path) -> None:
    cfg = compose([*overrides(data), "eval.documents=true", "eval.stride=16"])
    bundle = Bundle(cfg)
    packages = requirements(bundle)
    assert "sentencepiece" not in packages and "load_tokenizer" not in bundle.readable
    python = clean_environment(tmp_path / "clean", packages)
    found = rehearse(cfg, bundle.wrapped, python, tmp_path, steps=4)
    assert found.losses > 4 and found.artifact_bytes > 1000 and found.val_bpb > 0
    assert not [*(tmp_path / "script").glob("*.model")]
