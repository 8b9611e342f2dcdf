"""SentencePiece tokenizers and the byte counts behind bits per byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece

from golf.errors import GolfError

if TYPE_CHECKING:
    # Named apart from the library, so that a script for bytes does not import it.
    from sentencepiece import SentencePieceProcessor as Tokenizer

SPACE = "\u2581"  # SentencePiece's sign for a space inside a piece


@dataclass(frozen=True)
class ByteTables:
    """The UTF-8 bytes of each token, as arrays over token ids `[V]`.

    A piece that begins with a space owns that space only if some text came before it: `leading_space` marks such
    pieces, `boundary` the control tokens after which no space is written.
    """

    base_bytes: np.ndarray  # int16, without the leading space
    leading_space: np.ndarray  # bool
    boundary: np.ndarray  # bool

    def of(self, previous: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the bytes of the `target` tokens, each after its `previous` token, int16. All have one shape."""
        return self.base_bytes[target] + (self.leading_space[target] & ~self.boundary[previous])


def load_tokenizer(path: Path, vocab_size: int) -> Tokenizer:
    """Load the SentencePiece model at `path`. Raises `GolfError` unless it has exactly `vocab_size` pieces."""
    if not path.is_file():
        how = "fetch it with `golf data get` or give data.tokenizer_path"
        raise GolfError(f"The tokenizer {path} does not exist: {how}.")
    try:
        tokenizer = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    except (RuntimeError, OSError) as error:
        raise GolfError(f"{path} is not a SentencePiece model: give data.tokenizer_path one (*.model).") from error
    if tokenizer.vocab_size() != vocab_size:
        raise GolfError(
            f"data.vocab_size={vocab_size}, but the tokenizer {path} has {tokenizer.vocab_size()} pieces: "
            f"set data.vocab_size={tokenizer.vocab_size()} or choose its data."
        )
    return tokenizer


def byte_tables(tokenizer: Tokenizer, vocab_size: int) -> ByteTables:
    """Build the tables over `max(vocab_size, pieces)` ids. Ids without a piece count zero bytes."""
    size = max(vocab_size, tokenizer.vocab_size())
    base_bytes = np.zeros(size, dtype=np.int16)
    leading_space = np.zeros(size, dtype=bool)
    # Ids without a piece write no text, so that the next piece's space has nothing to follow.
    boundary = np.ones(size, dtype=bool)
    for i in range(tokenizer.vocab_size()):
        if tokenizer.is_control(i) or tokenizer.is_unknown(i) or tokenizer.is_unused(i):
            continue
        boundary[i] = False
        if tokenizer.is_byte(i):
            # Its piece is written like <0x41>, six characters for one byte.
            base_bytes[i] = 1
            continue
        piece = tokenizer.id_to_piece(i)
        leading_space[i] = piece.startswith(SPACE)
        # The mark takes three bytes in UTF-8, the space that it stands for one.
        base_bytes[i] = len(piece.removeprefix(SPACE).replace(SPACE, " ").encode())
    return ByteTables(base_bytes, leading_space, boundary)
