"""Which keeps of a loop stand against the noise: their gain against that of two runs of one configuration."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import norm, t

from golf.errors import GolfError
from golf.exits import EXIT_NOT_BETTER, EXIT_UNDECIDED
from golf.field.loop_table import DROPPED, KEPT, LoopTable, Try
from golf.lab.report.table import FOR_PROGRAMS, Column, Table
from golf.tables import grouped
from golf.words import counted, listed, signed, significant

LEVEL = 0.05  # one-sided, as the verdicts of Golf's own sweeps
LONGEST_WORDS = 90  # characters of what was tried that a table shows
YES, NO, UNKNOWN = "stands", "within the noise", "noise unknown"
WORDS = {YES: "stands", NO: "within_noise", UNKNOWN: "unknown"}  # for programs; the first keep has none


@dataclass(frozen=True)
class Noise:
    """Standard deviation of the score of one run over seeds."""

    sigma: float
    freedom: float  # degrees of freedom; infinite for a number that was given
    source: str

    def least_gain(self, looks: int) -> float:
        """Return the least gain in bpb of one run over another that shows an improvement after `looks` tries."""
        level = LEVEL / max(looks, 1)
        quantile = norm.isf(level) if math.isinf(self.freedom) else t.isf(level, self.freedom)
        return float(quantile) * self.sigma * math.sqrt(2)


def noise_of(table: LoopTable) -> Noise | None:
    """Return the noise by the tries of one configuration, None if none was repeated."""
    repeated = [tries for tries in grouped((one.same, one) for one in table.scored).values() if len(_scores(tries)) > 1]
    freedom = sum(len(_scores(tries)) - 1 for tries in repeated)
    if not freedom:
        return None
    squares = sum((len(scores) - 1) * statistics.variance(scores) for scores in map(_scores, repeated))
    names = listed([one.name for one in repeated[0]], at_most=2)
    source = f"{counted(len(repeated), 'configuration')} with several runs, such as {names}"
    return Noise(math.sqrt(squares / freedom), freedom, source)


def _scores(tries: Sequence[Try]) -> list[float]:
    """Return the different scores: a row that was copied is one run."""
    return sorted({one.bpb for one in tries if one.bpb is not None})


def keeps(table: LoopTable) -> list[tuple[Try, float | None]]:
    """Return the kept tries that lower the best kept score, each with its gain in bpb; the first has none.

    A table that keeps nothing by its words has a try kept wherever it lowers the best.
    """
    decides = any(one.decision == KEPT for one in table.scored)
    best, found = math.inf, list[tuple[Try, float | None]]()
    for one in table.scored:
        assert one.bpb is not None
        if one.bpb < best and (one.decision == KEPT if decides else one.decision != DROPPED):
            found.append((one, best - one.bpb if found else None))
            best = one.bpb
    return found


def keeps_table(table: LoopTable, sigma: float | None = None) -> Table:
    """Return one row for each keep with its gain, and whether it stands alone and with all tries counted."""
    found, tries = keeps(table), len(table.scored)
    if not found:
        raise GolfError(f"{table.file}: all {tries} tries with a score were discarded, so there is no keep to judge.")
    noise = noise_of(table) if sigma is None else Noise(sigma, math.inf, "given by --sigma")
    alone, with_all = (noise.least_gain(looks) if noise else math.inf for looks in (1, tries - 1))
    rows = []
    for one, gain in found:
        stands = {"alone": _stands(gain, alone, noise), "all_tries": _stands(gain, with_all, noise)}
        row = {"try": one.name, "line": one.line, "words": _shortened(one.words), "val_bpb": one.bpb, "gain_bpb": gain}
        rows.append({**row, **stands, FOR_PROGRAMS: {name: WORDS.get(text) for name, text in stands.items()}})
    gains = [gain for _, gain in found if gain is not None]
    title = f"{table.file}: {counted(len(table.tries), 'try')}, {len(found)} kept that lower the best"
    return Table(_COLUMNS, rows, title, _notes(table, noise, gains, (alone, with_all)))


def some_stand(table: Table) -> int:
    """Return the exit status: 0 if a keep stands with all tries counted, 11 if the noise is unknown, else 10."""
    found = {row["all_tries"] for row in table.rows[1:]}
    return 0 if YES in found else EXIT_UNDECIDED if UNKNOWN in found else EXIT_NOT_BETTER


def _stands(gain: float | None, least: float, noise: Noise | None) -> str:
    if gain is None:
        return ""
    return UNKNOWN if noise is None else YES if gain > least else NO


def _notes(table: LoopTable, noise: Noise | None, gains: Sequence[float], least: tuple[float, float]) -> list[str]:
    tries = len(table.scored)
    said = [f"A table says so: no log of these runs was read. Scores are those of the column {table.column}."]
    if not gains:
        return [*said, "One keep is the beginning: nothing was compared with it and kept."]
    if noise is None:
        unknown = "The noise is unknown, because no configuration ran twice, so a keep may be luck:"
        return [*said, f"{unknown} run the first and the last keep under two more seeds, or name it with --sigma."]
    freedom = "" if math.isinf(noise.freedom) else f", {counted(int(noise.freedom), 'degree')} of freedom"
    alone, all_tries = (sum(gain > bound for gain in gains) for bound in least)
    single, corrected = map(significant, least)
    return [
        *said,
        f"Two runs of one configuration scatter by {significant(noise.sigma)} bpb ({noise.source}{freedom}).",
        f"Of {counted(len(gains), 'keep')} after the first {alone} gained more than {single} bpb, the least "
        f"that one comparison of two runs shows (one-sided {LEVEL}), and {all_tries} more than {corrected}, "
        f"the least with all {tries - 1} tries counted (Bonferroni).",
        "Each kept score was chosen for being low: gains are smaller than they seem, as fresh seeds tell.",
    ]


def _shortened(words: str) -> str:
    return words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 1].rstrip()}…"


def _bpb(value: Any) -> str:
    return f"{value:.4f}"


_COLUMNS = (
    Column("try", "try", is_text=True),
    Column("line", "line", in_text=False),
    Column("words", "what was tried", is_text=True, spare=1),
    Column("val_bpb", "bpb", _bpb),
    Column("gain_bpb", "gain", signed),
    Column("alone", "alone", is_text=True),
    Column("all_tries", "with all tries counted", is_text=True),
)
