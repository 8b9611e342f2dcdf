"""`golf keep` on runs that are there: one seed, rounds, a confirmation, and what it refuses. One test trains."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.lab.sweep.campaign import FIRST_OF_CONFIRMATIONS, SEEDS_OF_A_KEEP, path_of
from golf.run.code import own_code
from golf.run.identity import variant_id
from tests.kills import kill_at
from tests.lab.report.runs import write_run
from tests.support import ROOT, Done, compose, golf_command, golf_main, tiny_overrides

SD = 0.0007
GOOD, IDLE, BAD = "optim.matrix_lr=0.03 optim.beta2=0.99", "optim.adam_eps=2e-8", "optim.matrix_lr=0.5"
SLIGHT = "optim.adam_eps=3e-8"
EFFECTS = {"optim.matrix_lr=0.03": -5.0, "optim.beta2=0.99": -5.0, IDLE: -0.05, BAD: 9.0, SLIGHT: -0.05}


def told(done: Done) -> dict[str, Any]:
    assert done.stdout, done.stderr
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


class Finished:
    """Runs that have finished before, with scores of a test's choice, so that a sweep of them trains nothing."""

    def __init__(self, tiny: OwnDataset, root: Path) -> None:
        self.base, self.root = tiny_overrides(tiny), root
        self.noise = np.random.default_rng(7)

    def add(self, bundles: Sequence[str], seeds: Sequence[int], **changes: Any) -> str:
        """Write a run of the start with `bundles` for each seed that has none, and return the variant's id."""
        overrides = [override for one in bundles for override in one.split()]
        cfg = compose([*self.base, *overrides])
        for seed in seeds:
            if not list(self.root.glob(f"*-{variant_id(cfg)}/seed{seed}")):
                noise = 0.05 * float(self.noise.standard_normal())
                bpb = 1.1 + SD * (sum(EFFECTS[override] for override in overrides) + noise)
                write_run(self.root, cfg, bpb, seed, code=own_code(), **changes)
        return variant_id(cfg)

    def keep(self, *words: str) -> Done:
        return golf_command("keep", "--base", shlex.join(self.base), *words)


@pytest.fixture
def finished(tiny: OwnDataset, runs: Path) -> Finished:
    return Finished(tiny, runs)


def test_one_seed_keeps_what_is_lower_and_the_chain_is_confirmed(finished: Finished) -> None:
    start, good = (finished.add(bundles, [1]) for bundles in ([], [GOOD]))
    finished.add([BAD], [1])
    bad = finished.keep(BAD, "--json")
    assert bad.returncode == 10 and told(bad)["decision"] == "discard" and told(bad)["difference_bpb"] > 0
    kept = finished.keep(*GOOD.split(), "--json")
    answer = told(kept)
    assert answer["season"] is None, "one seed has no p"
    assert kept.returncode == 0 and answer["decision"] == "keep" and answer["interval_low_bpb"] is None
    assert answer["incumbent"] == start and answer["candidate"] == good and answer["runs"] == 0
    assert answer["differs"] == {"optim.matrix_lr": [0.014, 0.03], "optim.beta2": [0.95, 0.99]}
    assert answer["campaign"] == {"name": "campaign", "tries": 2, "keeps": 1, "better_over_all_tries": None}
    # The same command gives the same answer, and no further try.
    assert told(finished.keep(GOOD, "--json")) == {**answer, "seconds": 0.0}
    finished.add([GOOD, IDLE], [1])
    assert finished.keep(IDLE).returncode == 0
    fresh = range(FIRST_OF_CONFIRMATIONS, FIRST_OF_CONFIRMATIONS + 10)
    for bundles in ([], [GOOD], [IDLE], [GOOD, IDLE]):
        finished.add(bundles, fresh)
    confirmed = finished.keep("--confirm", "--json", "--effect", str(SD))
    answer = told(confirmed)
    assert confirmed.returncode == 10 and answer["decision"] == "falls"
    assert [one["decision"] for one in answer["keeps"]] == ["stands", "falls"], answer
    assert answer["together"]["difference_bpb"] == pytest.approx(-10 * SD, abs=SD)
    assert answer["left"] == [*finished.base, *GOOD.split()]
    again = finished.keep("--confirm")
    assert again.returncode == 10 and "stands    optim.matrix_lr=0.03 optim.beta2=0.99: −0.0070" in again.stdout
    left = " ".join([*finished.base, *GOOD.split()])
    assert f"falls: 1 stands, 1 falls, of 2 keeps on {answer['seeds']} fresh seeds; left: {left}\n" in again.stdout
    shown = told(finished.keep("--json"))
    assert [one["decision"] for one in shown["tries"]] == ["discard", "keep", "keep"]
    assert shown["incumbent"] == [*finished.base, *GOOD.split(), IDLE] and len(shown["confirmations"]) == 1
    assert "campaign: 3 tries" in finished.keep().stdout


def test_keeps_that_cannot_be_left_out_say_so(finished: Finished) -> None:
    """The rate of the first keep is set again by the second, so that the chain without the first is the chain."""
    first, again = "optim.matrix_lr=0.03", GOOD
    for bundles in ([], [first], [again]):
        finished.add(bundles, [1])
    for candidate in (first, again):
        assert finished.keep(candidate).returncode == 0
    for bundles in ([], [first], [again]):
        finished.add(bundles, range(FIRST_OF_CONFIRMATIONS, FIRST_OF_CONFIRMATIONS + 2))
    answer = told(finished.keep("--confirm", "--rounds", "2", "--json"))
    assert [one["decision"] for one in answer["keeps"]] == ["replaced", "stands"] and answer["decision"] == "stands"
    assert answer["seeds"] == 2 and answer["left"] == [*finished.base, *again.split()]


def test_rounds_decide_with_an_interval_and_count_over_the_campaign(finished: Finished) -> None:
    first = range(SEEDS_OF_A_KEEP + 1, SEEDS_OF_A_KEEP + 11)
    for bundles in ([], [GOOD], [IDLE], [SLIGHT]):
        finished.add(bundles, first)
    futile = finished.keep(IDLE, "--decided", "--effect", str(SD), "--json")
    assert futile.returncode == 10 and "futile" in told(futile)["reason"]
    undecided = finished.keep(SLIGHT, "--decided", "--rounds", "2", "--json")
    assert undecided.returncode == 11 and "no looks are left" in told(undecided)["reason"]
    kept = finished.keep(GOOD, "--decided", "--json")
    answer = told(kept)
    assert kept.returncode == 0 and answer["in_rounds"] and answer["campaign"]["better_over_all_tries"] is True
    # Two candidates were compared with this incumbent before, and neither was better.
    assert answer["season"] == {"verdict": "better", "number": 3, "of": 3}
    assert "over the season: better (3 of 3 comparisons with this incumbent" in finished.keep(GOOD, "--decided").stdout
    assert (
        answer["interval_low_bpb"] < answer["difference_bpb"] < answer["interval_high_bpb"] < 0 and answer["p"] < 0.05
    )


def test_mistakes_are_one_sentence_and_leave_no_try(finished: Finished) -> None:
    none = golf_command("keep", "optim.beta2=0.99")
    assert none.returncode == 2 and "has not begun: give its start" in none.stderr
    mistakes = {
        ("optim.beta_2=0.99",): "There is no setting optim.beta_2",
        ("optim.beta2",): "is no override",
        ("optim.matrix_lr=0.014",): "changes nothing: the incumbent is that",
        ("seed=3",): "seed decides how runs are made",
        ("eval=sliding64",): "decides how runs are made or measured",
        ("model.num_heads=3",): "does not divide",
        ("optim.beta2=0.9,0.99",): "lists several values",
        ("--confirm",): "there is nothing to confirm",
        ("optim.beta2=0.99", "--confirm"): "--confirm tries nothing",
        ("--decided",): "--decided tries a candidate",
        ("optim.beta2=0.99", "--rounds", "3"): "add --decided or --confirm",
        ("optim.beta2=0.99", "--decided", "--rounds", "1"): "give 2 to 100",
        ("optim.beta2=0.99", "--campaign", "a/b"): "cannot name a file",
    }
    for words, sentence in mistakes.items():
        done = finished.keep(*words, "--json")
        assert done.returncode == 2 and not done.stdout and sentence in done.stderr, (words, done)
        assert done.stderr.count("error: ") == 1 and "Traceback" not in done.stderr, done.stderr
    other = golf_command("keep", "--base", "scale=laptop", "optim.beta2=0.99")
    assert other.returncode == 2 and "began from" in other.stderr
    assert golf_command("keep", "--base", "seed=3", "--campaign", "b").returncode == 2
    assert json.loads(path_of("campaign").read_text())["tries"] == [] and not path_of("b").exists()


def test_a_bundle_is_a_variant_of_a_sweep_in_rounds(finished: Finished) -> None:
    for bundles in ([], [GOOD]):
        finished.add(bundles, [1, 2, 3])
    words = ["--variant", "", "--variant", GOOD, "seed=1,2,3", "sweep.until=decided", "--json"]
    rows = told(golf_main(*finished.base, *words))["rows"]
    assert [row["verdict"] for row in rows] == ["better", "reference"] and rows[0]["optim.beta2"] == "0.99"
    assert rows[0]["variant"] == "0.99 0.03"


def test_bundles_alone_and_together_tell_whether_they_add_up(finished: Finished) -> None:
    arms = ["", GOOD, SLIGHT, f"{GOOD} {SLIGHT}"]
    for one in arms:
        finished.add([one], [1, 2, 3])
    report = told(golf_main(*finished.base, *(f"--variant={one}" for one in arms), "seed=1,2,3", "--json"))
    (said,) = (note for note in report["notes"] if "beside their sum" in note)
    assert "optim.beta2=0.99, optim.matrix_lr=0.03" in said and "no interaction is shown" in said


WRITES = [f"{write} {when}" for write in ("fsync", "replace") for when in ("before", "after")]


def killed(finished: Finished, moment: str, *words: str) -> bool:
    """Run `golf keep` in a copy of this process that dies at `moment`, and tell whether it came so far."""
    if (pid := os.fork()) == 0:
        kill_at(moment)
        os._exit(finished.keep(*words).returncode)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.slow
def test_a_kill_at_any_write_loses_no_try_and_counts_none_twice(finished: Finished) -> None:
    """The start of a campaign, a try at one seed, one in rounds and a confirmation, killed at each of their writes."""
    fresh = range(FIRST_OF_CONFIRMATIONS, FIRST_OF_CONFIRMATIONS + 2)
    for bundles, seeds in (([], [1, *fresh]), ([GOOD], [1, *fresh, *range(201, 203)]), ([GOOD, IDLE], range(201, 203))):
        finished.add(bundles, seeds)
    steps = ([GOOD], [IDLE, "--decided", "--rounds", "2"], ["--confirm", "--rounds", "2"])
    undisturbed = [told(finished.keep(*words, "--campaign", "calm", "--json")) for words in steps]
    for number, write in enumerate(WRITES):
        name = f"c{number}"
        # The first write of all is the start of the campaign.
        assert killed(finished, f"{name}.keep.json {write}", "--campaign", name)
        assert finished.keep("--campaign", name).returncode == 0
        for made, (words, expected) in enumerate(zip(steps, undisturbed, strict=True)):
            for file in ("sweep.json", f"{name}.keep.json"):
                assert killed(finished, f"{file} {write}", *words, "--campaign", name), (file, write)
                campaign = json.loads(path_of(name).read_text())
                recorded = len(campaign["tries"]) + len(campaign["confirmations"])
                assert recorded == made + (file != "sweep.json" and write == "replace after"), (file, write)
            answer = told(finished.keep(*words, "--campaign", name, "--json"))
            # The other campaigns' sweeps with this incumbent are of its season.
            left_out = {"seconds", "campaign", "season"}
            assert {k: v for k, v in answer.items() if k not in left_out} == {
                k: v for k, v in expected.items() if k not in left_out
            }
        campaign = json.loads(path_of(name).read_text())
        assert [one["decision"] for one in campaign["tries"]] == [one["decision"] for one in undisturbed[:2]]
        assert len(campaign["confirmations"]) == 1 and not list(path_of(name).parent.glob(f".{name}*"))


@pytest.mark.slow
def test_processes_that_keep_at_once_build_one_chain(finished: Finished, tmp_path: Path) -> None:
    """Each beats the start; whoever comes second has to beat the other one, too."""
    candidates = GOOD.split()
    for bundles in ([], *([one] for one in candidates), [GOOD]):
        finished.add(bundles, [1])
    assert finished.keep("--json").returncode == 0
    command = [sys.executable, "-m", "golf.commands.cli", "keep", "--json"]
    started = [subprocess.Popen([*command, one], cwd=ROOT, stdout=subprocess.PIPE, text=True) for one in candidates * 2]
    answers = [json.loads(process.communicate(timeout=900)[0]) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0]
    shown = told(finished.keep("--json"))
    assert {tuple(one["overrides"]) for one in shown["tries"]} == {(one,) for one in candidates}
    assert len(shown["tries"]) == 2 and shown["tries"][1]["incumbent"] == shown["tries"][0]["candidate"]
    assert {answer["candidate"] for answer in answers} == {one["candidate"] for one in shown["tries"]}


@pytest.mark.slow
def test_candidates_are_trained_and_confirmed(tiny: OwnDataset, runs: Path) -> None:
    base = shlex.join(tiny_overrides(tiny))
    kept = golf_command("keep", "--base", base, "schedule.iterations=12", "--json")
    assert kept.returncode == 0 and told(kept)["runs"] == 2
    worse = golf_command("keep", "optim.matrix_lr=1e-6", "optim.tied_embed_lr=1e-6", "--json")
    assert worse.returncode == 10 and told(worse)["runs"] == 1, "the incumbent's run is there"
    confirmed = golf_command("keep", "--confirm", "--rounds", "2", "--json")
    assert told(confirmed)["keeps"][0]["decision"] in ("stands", "undecided") and told(confirmed)["runs"] == 4
    assert told(golf_command("keep", "--confirm", "--rounds", "2", "--json"))["runs"] == 0
