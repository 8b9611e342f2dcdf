"""Sums over all tokens of what mixtures with a predictor call probabilities, at every position of a text.

`python -m bench.study_sums LICENSE` prints the smallest and the largest sum for Golf's tilt and predictors, and for two
public constructions that give no end to a token. The model is token_ngram's with contexts of one token, over 512 pieces
that are trained on the text; the bytes' law is byte_ppm's.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import sentencepiece
import torch

from golf.settings.scoring_config import TiltConfig
from golf.training.data.documents import train_tokenizer
from golf.training.scoring.predictor import mixed
from golf.training.scoring.tilt import find_hints, kept_beside_hint
from ideas.byte_ppm.byte_ppm import BytePPM, Spelling, spellings, with_totals
from ideas.token_ngram.token_ngram import NGrams

VOCAB, SHARES = 512, (0.1, 0.5)  # tokens; λ of the predictor
TILT = TiltConfig(method="ngram", contexts=[2], least_shares=[0.5], least_counts=[1])


def byte_laws(ppm: BytePPM, token: Spelling) -> list[float]:
    """Return the probability of each byte of `token` after the bytes before it."""
    seen = (with_totals(ppm.bytes, ppm.byte_contexts(token[:n])) for n in range(len(token)))
    return [ppm.blended(byte, counts, 1 / 257) for byte, counts in zip(token, seen, strict=True)]


def public_sums(p: list[float], ppm: BytePPM, share: float) -> dict[str, float]:
    """Return the sums over tokens if each of n bytes gets p^(1/n) from the model (PR #1785), and if the first byte gets
    its marginal and the others together the rest (PR #2032, #2138)."""
    marginals: dict[int, float] = {}
    for token, probability in zip(ppm.tokens, p, strict=True):
        marginals[token[0]] = marginals.get(token[0], 0.0) + probability
    plain = repaired = 0.0
    for token, probability in zip(ppm.tokens, p, strict=True):
        laws, marginal = byte_laws(ppm, token), marginals[token[0]]
        plain += math.prod((1 - share) * probability ** (1 / len(token)) + share * b for b in laws)
        rest = (1 - share) * probability / marginal + share * math.prod(laws[1:])
        repaired += ((1 - share) * marginal + share * laws[0]) * rest
    return {"plain byte mixture": plain, "marginal repair": repaired}


def sums_of(text: str, vocab: int = VOCAB) -> dict[str, list[float]]:
    """Return the sums over a vocabulary of `vocab` tokens at every position of `text`, by construction."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text.model"
        file.write_bytes(train_tokenizer([text], vocab))
        tokens = np.array(sentencepiece.SentencePieceProcessor(model_file=str(file)).encode(text))
        ppm = BytePPM(spellings(file, vocab), order=5, strength=0.1, discount=0.5)
    model, ngrams, hints = NGrams(1, 0, 1.0, 0.75, vocab), NGrams(4, 2, 0.1, 0.75, vocab), find_hints(tokens, TILT)
    found: dict[str, list[float]] = {}
    for i, token in enumerate(tokens[:-1].tolist()):
        laws = []
        for predictor in (model, ngrams, ppm):
            predictor.see(token)
            probability = predictor.propose(tokens[: i + 1]).probability
            laws.append(torch.tensor([*map(probability, range(vocab))], dtype=torch.float64))
        nats, is_hint = -laws[0].log(), torch.arange(vocab) == hints.tokens[i]
        kept = kept_beside_hint(nats[hints.tokens[i]], torch.tensor(TILT.beta * float(hints.shares[i])))
        sums = {"n-gram tilt": mixed(nats, is_hint.double(), kept).neg().exp().sum().item()}
        for share in SHARES:
            kept = torch.tensor(1 - share).double().log()
            forms = public_sums(laws[0].tolist(), ppm, share)
            for name, q in zip(("token_ngram", "byte_ppm"), laws[1:], strict=True):
                forms[name] = mixed(nats, q, kept).neg().exp().sum().item()
            sums |= {f"{name}, λ = {share}": total for name, total in forms.items()}
        for name, total in sums.items():
            found.setdefault(name, []).append(total)
    return found


if __name__ == "__main__":
    for name, sums in sums_of(Path(sys.argv[1]).read_text()).items():
        print(f"{name:30} {len(sums)} positions: {min(sums):.7f} to {max(sums):.7f}")
