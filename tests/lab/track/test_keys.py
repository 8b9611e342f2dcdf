"""The keys of a run's values in a tracker, and a reader of a growing file."""

import json
import re
import shlex
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from golf.lab.track.keys import UNFINISHED, config_values, history_row, summary_values
from golf.lab.track.mirror_record import MirrorRecord, warning
from golf.lab.track.stream import Tail
from golf.run.identity import flat

LEAVES = st.none() | st.integers() | st.lists(st.integers(), max_size=2)
NAMES = st.sampled_from(["a", "b", "a_b", "c"])
LEVEL = st.dictionaries(NAMES, LEAVES, min_size=1)
NESTED = st.dictionaries(NAMES, LEAVES | LEVEL | st.dictionaries(NAMES, LEVEL, min_size=1), min_size=1)


def nested(values: dict) -> dict:
    """Return the inverse of `flat`, written independently."""
    root: dict = {}
    for key, value in values.items():
        *path, last = key.split("/")
        node = root
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return root


@settings(max_examples=50)
@given(NESTED)
def test_flat_keys_lose_nothing(values: dict) -> None:
    assert nested(dict(flat(values, joint="/"))) == values


def test_events_have_a_prefix_and_share_their_axes() -> None:
    train = {"event": "train", "step": 3, "train_seconds": 1.5, "tokens": 96, "train_loss": 2.0, "lr_multiplier": 0.5}
    assert history_row(train) == {
        "step": 3,
        "train_seconds": 1.5,
        "tokens": 96,
        "train/loss": 2.0,
        "train/lr_multiplier": 0.5,
    }
    assert history_row({"event": "validation", "step": 3, "val_bpb": 1.0}) == {"step": 3, "val/bpb": 1.0}
    assert history_row({"event": "post_quant", "val_bpb": 1.1, "how": "standard"}) == {
        "post_quant/val_bpb": 1.1,
        "post_quant/how": "standard",
    }


def test_configuration_names_techniques_and_machine_and_leaves_the_mirror_out(tmp_path: Path) -> None:
    folder = tmp_path / "mine-12345678" / "seed7"
    folder.mkdir(parents=True)
    config = {
        "seed": 7,
        "optim": {"matrix_lr": 0.02},
        "tech": {"xsa": {"last_n": 2}, "bare": {}},
        "track": {"mode": "x"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "environment.json").write_text(json.dumps({"cpu": "an EPYC", "gpus": 0, "git": {"commit": "abc"}}))
    assert config_values(folder) == {
        "seed": 7,
        "optim/matrix_lr": 0.02,
        "tech": ["xsa", "bare"],
        "variant": "mine-12345678",
        "tech/xsa": True,
        "tech/xsa/last_n": 2,
        "tech/bare": True,
        "machine/cpu": "an EPYC",
        "machine/gpus": 0,
        "git/commit": "abc",
    }


def test_a_run_without_a_result_is_unfinished_and_one_without_a_score_has_none(tmp_path: Path) -> None:
    assert summary_values(tmp_path)["state"] == UNFINISHED
    (tmp_path / "result.json").write_text(json.dumps({"state": "crashed", "post_quant": None, "train_seconds": 0.0}))
    assert summary_values(tmp_path) == {"state": "crashed", "post_quant": None, "train_seconds": 0.0}


def test_the_last_score_of_the_artifact_counts(tmp_path: Path) -> None:
    scores = {
        "post_quant": {"val_bpb": 1.2, "how": "standard"},
        "post_quant_sliding": {"val_bpb": 1.1, "how": "sliding"},
    }
    (tmp_path / "result.json").write_text(
        json.dumps({"state": "ok", **scores, "tokens_seen": 10, "train_seconds": 4.0})
    )
    summary = summary_values(tmp_path)
    assert (summary["val_bpb"], summary["how"], summary["tokens_per_second"]) == (1.1, "sliding", 2.5)


def test_a_line_is_read_when_it_is_complete_and_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.new_events() == []
    path.write_text('{"event": "a"}\n{"event": "b", "te')
    assert tail.new_events() == [{"event": "a"}]
    with path.open("a") as file:
        file.write('xt": "ü"}\nnot JSON\n{"event": "c"}\n')
    assert tail.new_events() == [{"event": "b", "text": "ü"}, {"event": "c"}]
    assert tail.new_events() == []


def test_an_id_belongs_to_a_folder(tmp_path: Path) -> None:
    """A folder keeps its id. The same run in two folders has two ids."""
    ids = []
    for place in ("here", "there"):
        folder = tmp_path / place / "mine-12345678" / "seed7.3"
        folder.mkdir(parents=True)
        MirrorRecord.open(folder).write(folder)
        assert MirrorRecord.open(folder) == MirrorRecord.read(folder)
        ids.append(MirrorRecord.open(folder).id)
    assert all(id.startswith("12345678-s7-a3-") for id in ids) and ids[0] != ids[1]


def test_the_command_that_a_warning_names_can_be_pasted() -> None:
    folder = Path("/my runs/漢/seed1")
    named = re.search("`(.*)`", warning("no key", folder))
    assert named and shlex.split(named[1]) == ["golf", "sync", str(folder)]
