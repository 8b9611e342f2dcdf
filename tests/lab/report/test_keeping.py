"""Keep or discard: decisions follow the verdict, orientation included, and the reasons for none are sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.keeps import GREEDY, PROPOSALS, search
from golf.errors import GolfError
from golf.lab.report.findings import Findings, judged
from golf.lab.report.keeping import DISCARD, FALLS, KEEP, STANDS, UNDECIDED, Decision, decide, standing, worst
from golf.lab.report.sequential import SequentialPlan
from golf.lab.report.study import Study
from golf.lab.report.variants import Variant
from golf.settings.composition import rules_named
from tests.lab.report.runs import variant

HOUSE = rules_named("house")
SD = 0.0007
NOISE = np.random.default_rng(3).standard_normal((4, 10)) * SD


def found(*variants: Variant, rounds: bool = True, asks_worse: bool = False) -> Findings:
    plan = SequentialPlan(tuple(range(1, 11)), variants[0].id, asks_worse=asks_worse)
    return judged(Study("x", variants, variants[0], plan=plan if rounds else None), HOUSE)


def around(name: str, mean: float, row: int) -> Variant:
    return variant(name, list(mean + NOISE[row]))


@pytest.mark.parametrize(("gain_sd", "decision"), [(8, KEEP), (-8, DISCARD), (0, DISCARD)])
def test_rounds_keep_what_is_better_and_discard_what_is_worse_or_futile(gain_sd: int, decision: str) -> None:
    done = decide(found(around("incumbent", 1.1, 0), around("candidate", 1.1 - gain_sd * SD, 1)), "candidate")
    assert done.decision == decision and "look" in done.reason and done.p is not None
    assert done.interval_low_bpb is not None and done.interval_high_bpb is not None and done.difference_bpb is not None
    assert done.interval_low_bpb < done.difference_bpb < done.interval_high_bpb


@given(st.floats(0.5, 2), st.floats(0.5, 2))
@settings(max_examples=30)
def test_one_seed_keeps_what_is_lower(incumbent: float, candidate: float) -> None:
    done = decide(found(variant("i", [incumbent]), variant("c", [candidate]), rounds=False), "c")
    assert (done.decision == KEEP) == (candidate < incumbent) and done.interval_low_bpb is None and done.p is None
    assert done.difference_bpb == candidate - incumbent


def test_a_candidate_that_is_inert_here_is_discarded_with_that_reason() -> None:
    done = decide(found(variant("i", [1.1]), variant("c", [1.1]), rounds=False), "c")
    assert (done.decision, done.difference_bpb) == (DISCARD, 0.0) and "changes nothing here" in done.reason


def test_runs_of_very_different_lengths_are_named() -> None:
    """A machine with other work on it once gave the incumbent 323 steps and the candidate 475."""
    sides = [variant(name, [bpb]) for name, bpb in (("i", 2.05), ("c", 1.99))]
    short, long = (replace(v, rows=(replace(v.rows[0], steps=n),)) for v, n in zip(sides, (323, 475), strict=True))
    assert decide(found(short, long, rounds=False), "c").reason == "lower at one seed, by 475 steps against 323"


def test_runs_that_do_not_count_or_compare_are_no_keeps() -> None:
    lower = variant("c", [1.0])
    void = replace(lower, rows=(replace(lower.rows[0], state="void", reason="token 3 changes the output at 2"),))
    done = decide(found(variant("i", [1.1]), void, rounds=False), "c")
    assert done == Decision(DISCARD, "void: token 3 changes the output at 2")
    with pytest.raises(GolfError, match="The incumbent has no run that counts: void"):
        decide(found(void, variant("d", [1.0]), rounds=False), "d")
    for changes, why in (({"data": "other"}, "another text"), ({"code_digest": "b"}, "the code that ran is a, b")):
        with pytest.raises(GolfError, match=why):
            decide(found(variant("i", [1.1], code_digest="a"), variant("c", [1.0], **changes), rounds=False), "c")


def test_a_keep_stands_if_the_chain_is_worse_without_it() -> None:
    chain = around("chain", 1.1, 0)
    arms = {"needed": 1.1 + 8 * SD, "idle": 1.1, "harmful": 1.1 - 8 * SD}
    variants = [chain, *(around(name, mean, row) for row, (name, mean) in enumerate(arms.items(), start=1))]
    findings = found(*variants, asks_worse=True)
    standings = {name: standing(findings, name) for name in arms}
    assert {name: one.decision for name, one in standings.items()} == {
        "needed": STANDS,
        "idle": FALLS,
        "harmful": FALLS,
    }
    # What a keep brings is negative where it helps, as every difference.
    assert (standings["needed"].difference_bpb or 0) < 0 < (standings["harmful"].difference_bpb or 0)
    assert (standings["needed"].interval_high_bpb or 0) < 0 and "a deterioration of" in standings["idle"].reason
    assert worst([*standings.values()]) == FALLS and worst([standings["needed"]]) == STANDS
    assert worst([standings["needed"], Decision(UNDECIDED, "")]) == UNDECIDED


def test_the_question_turned_is_the_question_of_the_other_side() -> None:
    """Ask whether b is worse than a: it is decided as the question whether a, turned over, is better."""
    for gain in (0.0, 1.0, 8.0):
        one, other = 1.1 + NOISE[0], 1.1 - gain * SD + NOISE[1]
        better = found(variant("a", list(one)), variant("b", list(other))).verdicts["b"]
        turned = found(variant("a", list(2.2 - one)), variant("b", list(2.2 - other)), asks_worse=True).verdicts["b"]
        words = {"better": "worse", "worse": "better"}
        assert turned.kind == words.get(better.kind, better.kind) and turned.p == pytest.approx(better.p)


def test_a_simulated_search_gains_less_than_it_claims() -> None:
    """The numbers are those of docs/verdicts.md, within the error of a few searches."""
    rng = np.random.default_rng(5)
    nulls = np.mean([search(60, PROPOSALS["A/A"], GREEDY, 0.0, rng) for _ in range(12)], axis=0)
    keeps, without_gain, claimed, true, _, stand, *_ = nulls
    assert keeps == without_gain and 2 < keeps < 6 and claimed > 1.5 and true == 0 and stand < 0.5
