"""The audit of several seeds by one another, and of a model's first loss by that of sound public runs.

Sources: pull requests #2101 (logs of three seeds with the same progress), #2060 and #2018 (other training data).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from golf.field.foreign_run import ForeignRuns
from golf.field.scores import POST, PRE, SLIDING, TTT

FEWEST_ALIKE = 5  # numbers that two seeds cannot share by chance
RATIO_SLACK = 1e-6  # relative; logs of public records with eight decimals differ by less than 3e-8
# Nats per token of the first step by seed, of all public runs of the model with so many parameters that trained on the
# hosted data. Other data begin with another batch.
FIRST_LOSSES = {42: "9.0087", 0: "9.0105", 1234: "9.0017", 314: "8.9988", 7: "9.0170"}
FIRST_LOSS_PARAMS = range(35_945_600, 35_945_700)


def seed_remarks(runs: ForeignRuns) -> list[str]:
    """Return what the logs of several seeds cannot have together, and first losses of other training data."""
    return [*_unlike_ratios(runs), *_same_progress(runs), *_other_first_losses(runs)]


def _unlike_ratios(runs: ForeignRuns) -> list[str]:
    """Return kinds of score whose loss and bits per byte have two ratios: one script on one text has one."""
    faults = []
    for kind in (PRE, POST, SLIDING, TTT):
        of_text: dict[Any, list[tuple[float, float, str]]] = {}  # scored text → (ratio, its relative error, run)
        for run in runs:
            pair = run.present(f"{kind}_loss", f"{kind}_bpb")
            if len(pair) == 2 and all(figure.text and 0 < figure.value < math.inf for figure in pair):
                error = sum(figure.unit_in_last_place / figure.value for figure in pair)
                text = run.value("val_tokens"), run.value("eval_seq_len")
                of_text.setdefault(text, []).append((pair[0].value / pair[1].value, error, run.name))
        for known in of_text.values():
            (low, low_error, one), (high, high_error, other) = min(known), max(known)
            if high / low - 1 > RATIO_SLACK + low_error + high_error:
                ratios = f"{low:.6f} in {one} and {high:.6f} in {other}"
                faults.append(f"{kind} loss over bits per byte is {ratios}: one script on one text has one ratio")
    return faults


def _same_progress(runs: ForeignRuns) -> list[str]:
    """Return pairs of seeds that print the same losses in training or the same progress in scoring."""
    pairs = [(a, b) for a, b in itertools.combinations(runs, 2) if a.seed != b.seed]
    return [
        f"{one.name} and {other.name} print the same {len(mine)} numbers on their way: two seeds cannot"
        for one, other in pairs
        for mine, theirs in zip(one.courses, other.courses, strict=True)
        if len(mine) >= FEWEST_ALIKE and mine == theirs
    ]


def _other_first_losses(runs: ForeignRuns) -> list[str]:
    """Return runs of a well-known model whose first loss is not that of their seed."""
    faults = []
    for run in runs:
        usual = FIRST_LOSSES.get(-1 if run.seed is None else run.seed)
        first = next((text[2:] for text in run.courses[0] if text.startswith("1:")), None)
        if run.count("model_params") in FIRST_LOSS_PARAMS and usual and first and first != usual:
            other = f"the first loss is {first}, other runs of this model and seed have {usual}"
            faults.append(f"{run.name}: {other}: other training data, or another initialisation")
    return faults
