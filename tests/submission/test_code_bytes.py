"""Code bytes are the size of the wrapped script; they are remembered, and an estimate comes close."""

import dataclasses
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.run.identity import variant_id
from golf.settings.config import Config
from golf.submission import code_bytes as code
from golf.submission.code_bytes import code_bytes, estimated_code_bytes
from golf.submission.script.bundle import Bundle, entries
from golf.submission.script.modules import Module, read_modules
from golf.training.techniques.base import Technique
from tests.support import compose, tiny_overrides


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of the test's own in which counts are remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code._remembered.cache_clear()
    return tmp_path / "golf" / "code_bytes"


@pytest.mark.slow
def test_code_bytes_are_the_scripts_and_are_remembered(remembered: Path, tiny: OwnDataset) -> None:
    # `ortho_init` is applied last: the order of the techniques, not that of the alphabet, decides on some bytes.
    exact = compose([*tiny_overrides(tiny), "rules.code_bytes=exact", "tech=[ortho_init,smear]"])
    size = code_bytes(exact)
    assert size == len(Bundle(exact).wrapped)
    (known,) = remembered.iterdir()
    assert known.read_text() == str(size)
    known.write_text("12345")
    code._remembered.cache_clear()
    assert code_bytes(exact) == 12345
    assert code_bytes(dataclasses.replace(exact, seed=99)) == 12345  # one script for all seeds


@pytest.mark.slow
def test_an_estimate_is_remembered_until_a_file_of_the_package_changes(
    remembered: Path, tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, ...]] = []

    def counted(entries: tuple[str, ...]) -> list[Module]:
        read.append(entries)
        return read_modules(entries)

    def again() -> int:
        code._remembered.cache_clear()
        return estimated_code_bytes(tiny_cfg)

    monkeypatch.setattr(code, "read_modules", counted)
    size = again()
    assert again() == size and len(read) == 1
    # A damaged entry counts as none.
    (known,) = remembered.iterdir()
    known.write_text("nothing")
    assert again() == size and len(read) == 2
    monkeypatch.setattr(code, "own_code", lambda: "of edited files")
    assert again() == size and len(read) == 3


def test_an_estimate_is_asked_for_by_the_rules_and_is_the_same_variant(tiny: OwnDataset) -> None:
    exact, estimate = (compose([*tiny_overrides(tiny), f"rules.code_bytes={how}"]) for how in ("exact", "estimate"))
    assert code_bytes(estimate) == estimated_code_bytes(exact)
    assert variant_id(estimate) == variant_id(exact)
    with pytest.raises(GolfError, match=r"rules\.code_bytes=guess"):
        compose(["rules.code_bytes=guess"])


def test_a_technique_from_outside_the_package_is_not_counted(tiny_cfg: Config) -> None:
    class Outside(Technique):
        name = "outside"

    foreign = dataclasses.replace(tiny_cfg, tech={"outside": Outside()})
    assert code_bytes(foreign) == code_bytes(tiny_cfg)


def test_a_technique_counts_only_where_it_is_selected(tiny_cfg: Config) -> None:
    plain = estimated_code_bytes(tiny_cfg)
    assert plain < estimated_code_bytes(dataclasses.replace(tiny_cfg, tech=compose(["tech=[xsa]"]).tech))


def test_an_estimate_is_of_the_modules_that_a_script_is_cut_from(tiny_cfg: Config) -> None:
    with_xsa = dataclasses.replace(tiny_cfg, tech=compose(["tech=[xsa]"]).tech)
    found = [{module.name for module in read_modules(entries(cfg))} for cfg in (tiny_cfg, with_xsa)]
    assert found[1] - found[0] == {"golf.training.techniques.xsa"}
    assert "golf.train_gpt" in found[0] and "golf.lab.sweep.batch" not in found[0]
