"""Studies from sweeps and folders, and the effects that an ablation can and cannot separate."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golf.errors import GolfError
from golf.lab.report import changes
from golf.lab.report.board_sweep import sweep_values
from golf.lab.report.changes import change, required_by, settings_that_differ, why_not_separable
from golf.lab.report.findings import judged
from golf.lab.report.results import results_table
from golf.lab.report.study import read_study
from golf.lab.report.table import render
from golf.run.identity import identity_of, variant_id
from golf.settings.config import Config, ModelConfig, OptimConfig, to_dict
from golf.training.techniques.xsa import XSA
from ideas.ema.ema import EMA
from ideas.lawa.lawa import LAWA
from ideas.smear.smear import Smear
from tests.lab.report.runs import with_lr, write_lr_sweep, write_run, write_sweep


def test_a_sweep_by_name_by_folder_and_as_loose_folders(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.02: [1.2230, 1.2228]})
    by_name, by_folder, loose = (read_study([t]) for t in ("lr", str(runs / "sweeps/lr"), str(runs)))
    for study in (by_name, by_folder, loose):
        assert study.swept == ("optim.matrix_lr",)
        assert {v.label for v in study.variants} == {"optim.matrix_lr=0.04", "optim.matrix_lr=0.02"}
        assert sorted(len(v.rows) for v in study.variants) == [2, 2]
    assert by_name.reference is by_name.variants[0] and by_name.reference.label == "optim.matrix_lr=0.04"
    assert (by_name.title, by_name.kind) == ("lr", "grid")
    one = read_study([str(runs / f"run-{variant_id(with_lr(0.02))}")])
    assert len(one.variants) == 1 and one.reference is None


def test_a_sweep_that_was_copied_elsewhere_has_its_runs_there(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.02: [1.2230, 1.2228]})
    runs.rename(tmp_path / "copied")
    for target in ("copied/sweeps/lr", "copied/sweeps/lr/sweep.json"):
        study = read_study([str(tmp_path / target)])
        assert [row.state for v in study.variants for row in v.rows] == ["ok"] * 4
    monkeypatch.chdir(tmp_path / "copied" / "sweeps" / "lr")
    assert len(read_study(["."]).variants[0].counted) == 2


def test_a_copy_of_all_runs_has_its_own_sweeps(runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.03: [1.2240, 1.2236], 0.02: [1.2230, 1.2228]})
    runs.rename(tmp_path / "copied")
    folders = [str(tmp_path / "copied" / f"run-{variant_id(with_lr(lr))}") for lr in (0.04, 0.02)]
    assert any("was the best of 3 in the sweep lr" in note for note in read_study(folders).about_chosen)
    copied = read_study([str(tmp_path / "copied")])
    assert copied.notes == copied.about_chosen == ()


def test_a_sweep_at_any_time(runs: Path) -> None:
    write_run(runs, with_lr(0.04), 1.2286)
    write_run(runs, with_lr(0.03), None)
    asked = [([f"optim.matrix_lr={lr}"], with_lr(lr), 1) for lr in (0.04, 0.03, 0.02)]
    write_sweep(runs, "lr", asked)
    study = read_study(["lr"])
    assert [v.rows[0].state for v in study.variants] == ["ok", "unfinished", "waiting"]
    shown = render(results_table(judged(study, Config().rules)), "text")
    assert "running or was killed" in shown and "waiting: not started" in shown
    assert "2 of 3 runs not finished yet" in shown


def test_interrupted_runs_are_not_finished_and_count_as_comparisons(runs: Path) -> None:
    """After Ctrl-C the same command repeats them, so no verdict may be easier than it will be then."""
    for lr, state in ((0.04, "ok"), (0.03, "ok"), (0.02, "interrupted")):
        for seed, bpb in ((1, 1.2286), (2, 1.2281)):
            write_run(runs, with_lr(lr), bpb - lr / 10, seed, state=state)
    asked = [([f"optim.matrix_lr={lr}"], with_lr(lr), seed) for lr in (0.04, 0.03, 0.02, 0.01) for seed in (1, 2)]
    write_sweep(runs, "lr", asked, reference=variant_id(with_lr(0.04)))
    findings = judged(read_study(["lr"]), Config().rules)
    assert "4 of 8 runs not finished yet" in render(results_table(findings), "text")
    assert findings.verdicts[variant_id(with_lr(0.03))].family == 3


@pytest.mark.parametrize("wanted", ["0.02", "optim.matrix_lr=0.02", variant_id(with_lr(0.02))])
def test_the_reference_can_be_named(runs: Path, wanted: str) -> None:
    write_lr_sweep(runs, {0.04: [1.2286], 0.02: [1.2230]})
    reference = read_study(["lr"], wanted).reference
    assert reference is not None and reference.label == "optim.matrix_lr=0.02"
    with pytest.raises(GolfError, match=r"0\.9 is not among the variants: optim"):
        read_study(["lr"], "0.9")


def test_an_ambiguous_reference_lists_the_matches(runs: Path) -> None:
    configs = [replace(with_lr(lr), model=ModelConfig(num_layers=n)) for lr in (0.04, 0.02) for n in (9, 10)]
    asked = []
    for cfg in configs:
        write_run(runs, cfg, 1.22)
        overrides = [f"optim.matrix_lr={cfg.optim.matrix_lr}", f"model.num_layers={cfg.model.num_layers}"]
        asked.append((overrides, cfg, 1))
    write_sweep(runs, "grid", asked, swept=["optim.matrix_lr", "model.num_layers"])
    with pytest.raises(GolfError, match=r"0\.02 fits 2 variants: .*num_layers=9 \(.*num_layers=10 \("):
        read_study(["grid"], "0.02")
    with pytest.raises(GolfError, match="run fits 4 variants"):
        read_study(["grid"], "run")
    found = read_study(["grid"], "optim.matrix_lr=0.02 model.num_layers=10").reference
    assert found is not None and found.id == variant_id(configs[3])


def test_seeds_that_were_added_after_a_look_are_named(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290, 1.2280], 0.02: [1.2230, 1.2228, 1.2233]}, "lr-bbbbbbbb")
    assert read_study(["lr"]).notes == ()
    asked = [([f"optim.matrix_lr={lr}"], with_lr(lr), seed) for lr in (0.04, 0.02) for seed in (1, 2)]
    write_sweep(runs, "lr-aaaaaaaa", asked, created="2025-12-31T00:00:00")
    (note,) = read_study(["lr-bbbbbbbb"]).notes
    assert note.startswith("Seeds were added to those of the earlier sweep lr-aaaaaaaa")
    assert read_study(["lr-aaaaaaaa"]).notes == ()
    # Root and folders of the same runs say the same, and so does a folder of one variant.
    folders = sorted(str(path) for path in runs.glob("run-*"))
    assert len(folders) == 2
    for targets in ([str(runs)], folders, folders[:1], ["lr-aaaaaaaa", "lr-bbbbbbbb"]):
        assert read_study(targets).notes[:1] == (note,), targets
    write_lr_sweep(runs, {0.06: [1.2286, 1.2290, 1.2280], 0.07: [1.2230, 1.2228, 1.2233]}, "other-cccccccc")
    assert read_study([str(path) for path in runs.glob("run-*") if str(path) not in folders]).notes == ()


def test_a_reference_that_was_chosen_as_a_best_goes_without_its_lucky_runs(runs: Path) -> None:
    first = {0.06: [1.2440, 1.2447], 0.04: [1.2233, 1.2230], 0.02: [1.2230, 1.2228]}
    write_lr_sweep(runs, first, "first-aaaaaaaa")
    asked = [([f"optim.matrix_lr={lr}"], with_lr(lr), seed) for lr in (0.02, 0.01) for seed in (1, 2)]
    write_sweep(runs, "second-bbbbbbbb", asked, created="2026-02-01T00:00:00")
    found = read_study(["second"])
    assert found.reference is not None and len(found.reference.rows) == 2
    assert any(
        "the best of 3 in the sweep first-aaaaaaaa, by runs that count here again" in n for n in found.about_chosen
    )
    for seed in (3, 4):
        write_run(runs, with_lr(0.02), 1.2238 + 0.0001 * seed, seed)
        asked.append((["optim.matrix_lr=0.02"], with_lr(0.02), seed))
    write_sweep(runs, "second-bbbbbbbb", asked, created="2026-02-01T00:00:00")
    found = read_study(["second"])
    assert found.reference is not None and [row.seed for row in found.reference.rows] == [3, 4]
    assert any("its runs there may have been lucky and do not count." in note for note in found.about_chosen)
    # The reference of the first sweep was not chosen for its score.
    write_sweep(runs, "first-aaaaaaaa", asked, reference=variant_id(with_lr(0.02)))
    assert not any("the best of" in note for note in read_study(["second"]).about_chosen)


def test_an_unknown_target_lists_the_sweeps(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286]})
    with pytest.raises(GolfError, match=r"nothing is no sweep and no folder of runs\. Sweeps: lr\."):
        read_study(["nothing"])
    (runs / "sweeps/lr/sweep.json").write_text("{")
    with pytest.raises(GolfError, match="not the record of a sweep"):
        read_study(["lr"])


def test_settings_that_move_along_are_named(runs: Path) -> None:
    configs = [replace(Config(), optim=OptimConfig(matrix_lr=lr, scalar_lr=lr)) for lr in (0.04, 0.02)]
    for cfg in configs:
        write_run(runs, cfg, 1.22)
    write_sweep(runs, "lr", [([f"optim.matrix_lr={c.optim.matrix_lr}"], c, 1) for c in configs])
    assert "optim.scalar_lr moves along" in read_study(["lr"]).notes[0]


def with_tech(**techniques: Any) -> Config:
    return replace(Config(), name="stack", tech=techniques)


def flat(cfg: Config) -> dict[str, Any]:
    return identity_of(to_dict(cfg))


def smear_requires_xsa() -> dict[str, Any]:
    """Return a registry in which one technique requires another; none of the real ones does."""
    return {"smear": SimpleNamespace(requires=("xsa",), conflicts=())}


def test_machines_that_settled_differently_are_named(runs: Path) -> None:
    asked = []
    for lr, kernel in ((0.04, "sdpa"), (0.04, "fa3"), (0.02, "sdpa")):
        cfg = with_lr(lr, model=ModelConfig(attention=kernel))
        write_run(runs, cfg, 1.22)
        asked.append(([f"optim.matrix_lr={lr}"], cfg, 1))
    write_sweep(runs, "mixed", asked)
    assert any("with model.attention fa3 and sdpa: `auto` chooses" in note for note in read_study(["mixed"]).notes)
    write_sweep(runs, "asked", asked, swept=["model.attention", "optim.matrix_lr"])
    assert not any("several rows" in note for note in read_study(["asked"]).notes)


def test_changes_in_words() -> None:
    base = flat(with_tech(xsa=XSA(), ema=EMA()))
    without = change(base, flat(with_tech(ema=EMA())))
    assert str(without) == "without xsa" and without.things == ["xsa"]
    assert str(change(base, flat(with_tech(xsa=XSA(last_n=2), ema=EMA())))) == "tech.xsa.last_n=2"
    decayed = flat(replace(Config(), optim=OptimConfig(muon_wd=0.1, adam_wd=0.1)))
    assert change(flat(Config()), decayed).things == ["weight_decay"]  # what drop=[weight_decay] names as one


def test_the_code_of_an_idea_comes_and_goes_with_it() -> None:
    plain = flat(with_tech(xsa=XSA()))
    # An idea with settings, and one without, which is a key of its own.
    for name, settings in (("mine", {"tech.mine.slope": 0.1}), ("bare", {"tech.bare": {}})):
        stack = {**plain, **settings, f"idea_code.{name}": "0123456789ab"}
        assert str(change(stack, plain)) == f"without {name}" and str(change(plain, stack)) == f"with {name}"
        assert why_not_separable(stack, plain) == why_not_separable(plain, stack) == ""
        shown = settings_that_differ({"a": stack, "b": plain})
        assert shown["a"].keys() | shown["b"].keys() <= {"tech", *settings}
        # Another code of the same idea is a change of its own, and is shown.
        edited = {**stack, f"idea_code.{name}": "ba9876543210"}
        assert change(stack, edited).things == [f"idea_code.{name}"]
        assert f"idea_code.{name}" in settings_that_differ({"a": stack, "b": edited, "c": plain})["a"]


def test_what_changes_two_things_separates_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    base = flat(with_tech(xsa=XSA(), ema=EMA(), smear=Smear()))
    assert why_not_separable(base, flat(with_tech(xsa=XSA(), ema=EMA()))) == ""
    assert why_not_separable(base, base) == "the same variant as the reference: nothing is different"
    both = flat(with_tech(ema=EMA()))
    assert why_not_separable(base, both) == "changes smear and xsa together"
    monkeypatch.setattr(changes, "technique_types", smear_requires_xsa)
    assert why_not_separable(base, both) == "changes smear and xsa together: smear requires xsa"
    wider = flat(replace(with_tech(ema=EMA(), smear=Smear()), model=ModelConfig(model_dim=256)))
    assert why_not_separable(base, wider) == "changes xsa and model.model_dim together"


def test_techniques_that_exclude_each_other_are_named() -> None:
    averaged = (flat(with_tech(**{kind.name: kind()})) for kind in (LAWA, EMA))
    assert why_not_separable(*averaged) == "changes lawa and ema together: lawa and ema exclude each other"


def test_leave_one_out_names_rows_by_what_is_missing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "technique_types", smear_requires_xsa)
    assert required_by("xsa", {"smear", "ema"}) == ["smear"] and required_by("ema", {"smear"}) == []
    whole = with_tech(xsa=XSA(), ema=EMA(), smear=Smear())
    stacks = {
        "": whole,
        "ema": with_tech(xsa=XSA(), smear=Smear()),
        "smear,xsa": with_tech(ema=EMA()),
    }
    for number, cfg in enumerate(stacks.values()):
        for seed in (1, 2, 3):
            write_run(runs, cfg, 1.20 + 0.01 * number + 0.0001 * seed, seed)
    asked = [([f"drop=[{names}]"], cfg, seed) for names, cfg in stacks.items() for seed in (1, 2, 3)]
    write_sweep(runs, "loo", asked, kind="leave_one_out", swept=["drop"], reference=variant_id(whole))
    study = read_study(["loo"])
    assert [v.label for v in study.variants] == ["stack", "without ema", "without smear, without xsa"]
    shown = render(results_table(judged(study, Config().rules)), "markdown")
    assert "not separable: changes smear and xsa together: smear requires xsa" in shown
    kinds = {v["name"]: v["kind"] for v in sweep_values(judged(study, Config().rules), runs)["variants"]}
    assert kinds["without smear, without xsa"] == "not separable" and kinds["without ema"] == "worse"
    assert "xsa is not separable: smear cannot be without it" in shown
    (ema_row,) = (line for line in shown.splitlines() if line.startswith("| without ema"))
    assert "| worse |" in ema_row
