"""Campaigns: what a chain of keeps sets, which seeds are fresh, what is no candidate, and a file that survives."""

from __future__ import annotations

import json
from multiprocessing import Process
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.lab.sweep.campaign import (
    SEED_OF_SEARCH,
    Campaign,
    Try,
    check_base,
    check_candidate,
    locked,
    path_of,
    read_campaign,
    write_campaign,
)
from golf.settings.bundles import as_setting, bundle, bundles_given, on_top

BUNDLES = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=3).map(
        lambda pairs: [f"g.{key}={value}" for key, value in pairs]
    ),
    max_size=5,
)


def kept(number: int, decision: str = "keep") -> Try:
    return Try([f"g.a={number}"], decision, "1", "2", in_rounds=False)


@given(BUNDLES)
def test_the_last_value_of_a_setting_holds(bundles: list[list[str]]) -> None:
    together = Campaign("x", [], []).together(bundles)
    expected = dict(override.split("=") for one in bundles for override in one)
    assert dict(override.split("=") for override in together) == expected and len(together) == len(expected)


@given(BUNDLES, st.integers(0, 4))
def test_a_keep_that_later_ones_replace_can_be_left_out(bundles: list[list[str]], at: int) -> None:
    campaign, without = Campaign("x", [], []), [*bundles[:at], *bundles[at + 1 :]]
    later = {override.split("=")[0] for one in bundles[at + 1 :] for override in one}
    own = {override.split("=")[0] for override in (bundles[at] if at < len(bundles) else [])}
    is_same = sorted(campaign.together(bundles)) == sorted(campaign.together(without))
    assert is_same or not own <= later


def test_techniques_come_on_top_and_what_is_dropped_stays_dropped() -> None:
    campaign = Campaign("x", ["experiment=e", "drop=[xsa]"], ["bigram"])
    assert campaign.together([["tech=[smear]"], ["tech=[smear,cautious]", "drop=[bigram]"]]) == [
        "tech=[bigram,smear,cautious]",
        "drop=[xsa,bigram]",
    ]
    assert campaign.together([["tech=[]"]]) == ["tech=[bigram]"] and campaign.together([]) == []


@given(st.lists(st.sampled_from(["keep", "discard", "undecided"]), max_size=20), st.integers(0, 5))
def test_no_confirmation_shares_a_seed_with_the_search(decisions: list[str], confirmations: int) -> None:
    campaign, searched = Campaign("x", [], []), {SEED_OF_SEARCH}
    for number, decision in enumerate(decisions):
        before = set(campaign.seeds(100))
        searched |= before
        campaign.tries.append(kept(number, decision))
        # A new incumbent is judged by runs that it was not chosen by.
        assert (not before & set(campaign.seeds(100))) == (decision == "keep")
    fresh: set[int] = set()
    for _ in range(confirmations):
        assert not (searched | fresh) & set(campaign.fresh_seeds(100))
        fresh |= set(campaign.fresh_seeds(100))
        campaign.confirmations.append({})


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("seed=3", "seed"),
        ("launch.fresh=true", "launch"),
        ("eval=sliding64", "eval"),
        ("+rules.cap_bytes=1", "rules"),
        ("data.val_files=x", r"data\.val_files"),
    ],
)
def test_what_makes_or_measures_runs_is_no_candidate(override: str, why: str) -> None:
    with pytest.raises(GolfError, match=f"{why} decides how runs are made or measured"):
        check_candidate(["optim.beta2=0.99", override])
    with pytest.raises(GolfError, match=r"write drop=\[xsa\]"):
        check_candidate(["~tech.xsa"])
    check_candidate(["optim.beta2=0.99", "data.train_batch_tokens=1024", "tech=[smear,xsa]"])
    for wrong in ("seed=3", "sweep.until=decided", "hydra/sweeper=optuna", "launch.fresh=true"):
        with pytest.raises(GolfError, match="cannot be in the start"):
            check_base([wrong])


def test_the_file_keeps_a_campaign_and_names_its_damage(runs: Path) -> None:
    campaign = Campaign("a", ["scale=laptop"], [], [kept(1), kept(2, "discard")], [{"decision": "stands"}])
    assert read_campaign("a") is None
    write_campaign(campaign)
    assert read_campaign("a") == campaign
    for damage in ("{", "[]", json.dumps({"tries": [{"x": 1}]})):
        path_of("a").write_text(damage)
        with pytest.raises(GolfError, match="is not a campaign of golf keep"):
            read_campaign("a")
    with pytest.raises(GolfError, match="cannot name a file"):
        read_campaign("../a")


def _add(count: int) -> None:
    for number in range(count):
        with locked("a"):
            campaign = read_campaign("a") or Campaign("a", [], [])
            campaign.tries.append(kept(number))
            write_campaign(campaign)


def test_processes_that_record_at_once_lose_nothing(runs: Path) -> None:
    processes = [Process(target=_add, args=(10,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    campaign = read_campaign("a")
    assert campaign and len(campaign.tries) == 30


def test_bundles_are_read_as_a_shell_reads_them() -> None:
    words = ["-m", "model=4l", "--variant", "a=1 'b=[x, y]'", "--variant=", "seed=1,2"]
    rest, bundles = bundles_given(words)
    assert rest == ["-m", "model=4l", "seed=1,2"] and bundles == [["a=1", "b=[x, y]"], []]
    assert as_setting(bundles) == """hydra.sweeper.variants=["a=1 'b=[x, y]'",""]"""
    assert on_top(["a=0", "c=3", "+b=4"], ["a=1", "b=2"]) == ["c=3", "a=1", "b=2"]
    for wrong, why in (("a", "no override"), ("-m", "no override"), ("'a=1", "cannot be read")):
        with pytest.raises(GolfError, match=why):
            bundle(wrong)
    for words, why in (
        (["--variant"], "followed by overrides in quotes"),
        (["--variant", "seed=1"], "A seed makes no"),
    ):
        with pytest.raises(GolfError, match=why):
            bundles_given(words)


def test_two_bundles_are_crossed() -> None:
    words = ["+sweep=interaction", "--variant", "a=1 tech=[x,y]", "--variant", "b=2 +tech=[y,z]", "seed=1,2"]
    rest, bundles = bundles_given(words)
    assert rest == ["seed=1,2"]
    assert bundles == [[], ["a=1", "tech=[x,y]"], ["b=2", "+tech=[y,z]"], ["a=1", "tech=[x,y,z]", "b=2"]]
    for words, why in (
        (["sweep=interaction", "--variant", "a=1"], "takes two changes, each a --variant, and not 1"),
        (["sweep=interaction", "--variant", "a=1", "--variant", "a=2"], "Both changes set a"),
    ):
        with pytest.raises(GolfError, match=why):
            bundles_given(words)
    # Without bundles the file of that name lists the runs.
    assert bundles_given(["+sweep=interaction"]) == (["+sweep=interaction"], [])
