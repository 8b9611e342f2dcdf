"""Text as bytes, `data.units=bytes`: the tokenizer without a file, and the check that shards hold bytes.

The ids are those of the public data set byte260: padding 0, BOS 1, EOS 2, unknown 3, and byte b as b + 4. Only BOS and
bytes are ever written.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from golf.challenge import BYTE_VOCABULARY
from golf.errors import GolfError
from golf.training.data.documents import BOS_ID

if TYPE_CHECKING:
    from golf.training.data.byte_tables import Tokenizer

CONTROL = ("<pad>", "<s>", "</s>", "<unk>")
FIRST_BYTE = len(CONTROL)  # id of the byte 0
DECODED_TOGETHER = 1 << 24  # tokens


def byte_tokenizer() -> Tokenizer:
    """Return the tokenizer of bytes under the type of the models that it stands beside."""
    return cast("Tokenizer", ByteTokenizer())


class ByteTokenizer:
    """UTF-8 bytes as tokens. The methods are those of a SentencePiece model that golf calls."""

    def vocab_size(self) -> int:
        return BYTE_VOCABULARY

    def bos_id(self) -> int:
        return BOS_ID

    def unk_id(self) -> int:
        return CONTROL.index("<unk>")

    def is_control(self, token: int) -> bool:
        return token < self.unk_id()

    def is_unknown(self, token: int) -> bool:
        return token == self.unk_id()

    def is_unused(self, token: int) -> bool:
        return False

    def is_byte(self, token: int) -> bool:
        return token >= FIRST_BYTE

    def id_to_piece(self, token: int) -> str:
        return CONTROL[token] if token < FIRST_BYTE else f"<0x{token - FIRST_BYTE:02X}>"

    def piece_to_id(self, piece: str) -> int:
        """Return the id of `piece`, that of the unknown token for what is none."""
        return next((i for i in range(BYTE_VOCABULARY) if self.id_to_piece(i) == piece), self.unk_id())

    def encode(self, text: str | Sequence[str]) -> list[Any]:
        """Return the ids of a text, or a list of them for several texts."""
        if isinstance(text, str):
            return [FIRST_BYTE + byte for byte in text.encode()]
        return [self.encode(each) for each in text]

    def decode(self, ids: Sequence[Any]) -> Any:
        """Return the text of ids, or a list of texts for several. Bytes that are no UTF-8 become U+FFFD."""
        if ids and not isinstance(ids[0], int):
            return [self.decode(each) for each in ids]
        return bytes(i - FIRST_BYTE for i in ids if i >= FIRST_BYTE).decode(errors="replace")


def check_bytes(tokens: np.ndarray) -> None:
    """Raise `GolfError` unless `tokens` `[n]` are documents of UTF-8 text. The last one may be cut off."""
    others = tokens[(tokens >= BYTE_VOCABULARY) | ((tokens < FIRST_BYTE) & (tokens != BOS_ID))]
    fault = f"token {others[0]}, which is neither BOS nor a byte" if others.size else ""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, 0 if fault else tokens.size, DECODED_TOGETHER):
            part = tokens[start : start + DECODED_TOGETHER]
            # A line end in the place of BOS is no text within a character either.
            decoder.decode(np.where(part == BOS_ID, ord("\n"), part - FIRST_BYTE).astype(np.uint8).tobytes())
    except UnicodeDecodeError:
        fault = "bytes that are no UTF-8 text"
    if fault:
        raise GolfError(
            f"The validation shards hold {fault}, so they are of a tokenizer and not of data.units=bytes: choose "
            "data=pydocs_bytes or data=fineweb_bytes, or make your own with `golf data tokenize --bytes`."
        )
