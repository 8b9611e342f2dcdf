"""The ledger of all finished variants, beside published negative results."""

from dataclasses import replace
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.report.ledger import PUBLISHED, beside_catalogue, ledger, read_catalogue
from golf.settings.config import Config, OptimConfig, RulesConfig
from tests.report.runs import write_lr_sweep, write_run, write_sweep
from tests.support import ROOT

CATALOGUE = """category,technique,base,delta_bpb,measured,evidence,source
optim,Weight decay 0.08 vs 0.04,PR593,0.008,"better at 100 s, worse at 600 s",1,PR670
optim,Weight decay 0.08 for Adam,PR1,0.001,,1,PR1
kernel,CUTLASS GEMM,same,,2.5x slower,1 bench,PR670
"""
NOISE = (-0.0005, 0.0, 0.0006)


def named(name: str, weight_decay: float) -> Config:
    return replace(Config(), name=name, optim=OptimConfig(muon_wd=weight_decay))


def negative_results(runs: Path) -> None:
    """Write a sweep of a base, one negative result and one variant that crashed."""
    base, worse, crashed = named("pr593_11l", 0.04), named("weight_decay_08", 0.08), named("xsa_all", 0.05)
    for seed, noise in enumerate(NOISE):
        write_run(runs, base, 1.1171 + noise, seed)
        write_run(runs, worse, 1.1251 + noise, seed)
    write_run(runs, crashed, 1.0, 0, state="crashed", reason="no memory")
    asked = [([f"experiment={c.name}"], c, seed) for c in (base, worse) for seed in range(3)]
    asked.append((["experiment=xsa_all"], crashed, 0))
    write_sweep(runs, "negative", asked, swept=["experiment"])


def test_negative_results_stay_with_interval_and_verdict(runs: Path) -> None:
    negative_results(runs)
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.02: [1.2230, 1.2228]})
    write_run(runs, named("alone", 0.2), 1.3)
    found = {(row["sweep"], row["variant"]): row for row in ledger(RulesConfig()).rows}
    worse = found["negative", "experiment=weight_decay_08"]
    assert worse["verdict"] == "worse" and worse["reference"] == "experiment=pr593_11l"
    assert worse["interval_low_bpb"] < 0.008 < worse["interval_high_bpb"]
    assert found["negative", "experiment=xsa_all"]["verdict"] == "crashed: no memory"
    assert found["lr", "optim.matrix_lr=0.02"]["verdict"] == "better"
    assert found["", "alone"]["verdict"] == "no reference" and len(found) == 6


def test_published_results_with_our_own_beside(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "catalogue.csv").write_text(CATALOGUE)
    negative_results(runs)
    table = beside_catalogue(tmp_path / "catalogue.csv", ledger(RulesConfig()))
    assert [row.get("verdict") for row in table.rows] == ["worse", None, None]
    assert table.rows[0]["delta_bpb"] == "0.008" and table.title.startswith("3 published negative results, 1 of them")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\udcff"])
def test_a_file_that_is_no_catalogue_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text, errors="surrogateescape")
    with pytest.raises(GolfError, match="catalogue"):
        read_catalogue(tmp_path / "x.csv")


def test_every_experiment_that_is_matched_exists() -> None:
    presets = {path.stem for path in (ROOT / "conf/experiment/negative").glob("*.yaml")}
    assert set(PUBLISHED) <= presets


def test_each_match_is_one_row_of_the_shared_catalogue() -> None:
    path = ROOT.parent / "shared/reference/negative_results.csv"
    if not path.is_file():
        pytest.skip("needs ../shared/reference, which is not beside this checkout")
    entries = read_catalogue(path)
    assert len(entries) == 139
    for begins in PUBLISHED.values():
        assert sum(e["source"] == "PR670" and e["technique"].startswith(begins) for e in entries) == 1
