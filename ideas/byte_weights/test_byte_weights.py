"""The loss against a loop over tokens, and the bytes against those of decoded text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import sentencepiece
import torch

import golf
from ideas.byte_weights.byte_weights import TokenBytes, tables_of

SMALL = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
WORDS = "the quick brown fox jumps over a lazy dog while naïve readers follow"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of 300 pieces with a piece for each byte."""
    made, words = io.BytesIO(), WORDS.split()
    texts = (" ".join(words[i % 7 :] + words[: i % 5]) for i in range(200))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=texts,
        model_writer=made,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("tokenizer") / "small.model"
    path.write_bytes(made.getvalue())
    return path


def overrides(path: Path) -> list[str]:
    size = sentencepiece.SentencePieceProcessor(model_file=str(path)).vocab_size()
    return [*SMALL, "model.compute_dtype=fp32", f"data.tokenizer_path={path}", f"data.vocab_size={size}"]


def test_the_loss_is_the_weighted_mean(tokenizer: Path) -> None:
    plain = golf.compose(overrides(tokenizer))
    chosen = ["tech=[byte_weights]", "tech.byte_weights.alpha=0.7", "tech.byte_weights.cap=4"]
    model, bare = golf.build_model(golf.compose([*overrides(tokenizer), *chosen])), golf.build_model(plain)
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    bare.load_state_dict(model.state_dict())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    # The sign ▁ of the first word's space is no text, as it follows a control token.
    ids = torch.tensor([[pieces.bos_id(), *pieces.encode(WORDS), pieces.bos_id(), *pieces.encode("a naïve fox €")]])
    inputs, targets = ids[:, :-1], ids[:, 1:]
    weights = []
    for previous, target in zip(inputs[0].tolist(), targets[0].tolist(), strict=True):
        if pieces.is_control(target) or pieces.is_byte(target):
            size = 1
        else:
            text = pieces.id_to_piece(target).replace("▁", " ")
            size = len((text.removeprefix(" ") if pieces.is_control(previous) else text).encode())
        weights.append(min(max(size, 1), 4) ** 0.7)
    assert len(set(weights)) >= 3
    nats = bare.token_losses(inputs, targets)
    expected = sum(w * n for w, n in zip(weights, nats[0], strict=True)) / sum(weights)
    loss = model(inputs, targets)
    torch.testing.assert_close(loss, torch.as_tensor(expected), rtol=1e-5, atol=1e-5)
    head, other = model.tok_emb.weight, bare.tok_emb.weight
    torch.testing.assert_close(
        torch.autograd.grad(loss, head)[0], torch.autograd.grad(expected, other)[0], rtol=1e-4, atol=1e-6
    )
    assert torch.equal(model.token_losses(inputs, targets), nats)


def test_bytes_add_up_to_the_text(tokenizer: Path) -> None:
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    cfg = golf.compose(overrides(tokenizer))
    ids = torch.tensor([[pieces.bos_id(), *pieces.encode(f"{WORDS} €")]])
    found = TokenBytes(tables_of(cfg), torch.device("cpu"))(ids[:, :-1], ids[:, 1:])
    assert found.sum().item() == len(f"{WORDS} €".encode())


def test_no_file_has_the_bytes(tokenizer: Path) -> None:
    model = golf.build_model(golf.compose([*overrides(tokenizer), "tech=[byte_weights]"]))
    assert not [name for name in model.state_dict() if "byte_weights" in name]


def test_bytes_of_a_sidecar_are_refused() -> None:
    with pytest.raises(golf.GolfError, match="drop byte_weights"):
        golf.compose(["tech=[byte_weights]", "data.byte_sidecar=true"])


def test_text_as_bytes_is_refused() -> None:
    with pytest.raises(golf.GolfError, match="bytes has none: drop it"):
        golf.compose(["tech=[byte_weights]", "data=pydocs_bytes"])
