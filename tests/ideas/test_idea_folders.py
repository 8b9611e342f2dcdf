"""Techniques in folders outside the package: found, composed, named in ids, missed with a sentence."""

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import golf
from golf.artifact.container import load, pack
from golf.artifact.header import read_header, read_model, write_header
from golf.commands.idea_new_command import write_idea
from golf.errors import GolfError, MissingError
from golf.idea_folders import Idea, fault, idea_of, ideas, outside_folders, place_of, refuse_changed, use_ideas
from golf.lab.cluster import snapshot
from golf.lab.report.settings_catalogue import found
from golf.registry import technique_types
from golf.run.folder import RunFolder, describe
from golf.run.identity import variant_id
from golf.settings.composition import refuse_mistakes
from golf.settings.config import Config, from_dict, to_dict
from golf.settings.consistency import warnings
from golf.settings.mistakes import explain
from golf.settings.usage import options_of
from golf.submission.code_bytes import estimated_code_bytes
from golf.submission.script.bundle import Bundle
from golf.submission.script.modules import source_of
from golf.training.model.build import shapeless_model
from tests.support import golf_main

SMALL = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
IDEA = """
from dataclasses import dataclass
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.slots import set_fields
from golf.training.techniques.base import Technique, technique

@technique("{name}")
@dataclass
class Idea(Technique):
    source = "a test"
    factor: float = 0.5  # of every norm of an MLP

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for controls in model.controls:
            set_fields(controls, "mlp_norm", self.name, factor=self.factor)
"""


def test_both_are_selected_built_and_dropped(outside: Path) -> None:
    cfg = golf.compose([*SMALL, "tech=[random_map,delta_rule,ln_scale]", "tech.random_map.map_seed=5"])
    assert sorted(cfg.tech) == ["delta_rule", "ln_scale", "random_map"]
    assert cfg.tech["random_map"].map_seed == 5
    # The YAML beside the module scales the rank with the width; the default of the class is 16.
    assert cfg.tech["random_map"].rank == round(256 * 32 / 512)
    names = golf.build_model(cfg).state_dict()
    assert "blocks.1.attn.gates.weight" in names and "blocks.0.mlp.up_rank.weight" in names
    assert "blocks.0.mlp.map" not in names, "the map costs no bytes"
    dropped = golf.compose([*SMALL, "tech=[random_map,xsa]", "drop=[random_map]"])
    assert variant_id(dropped) == variant_id(golf.compose([*SMALL, "tech=[xsa]"])) and not dropped.idea_code


def test_the_id_is_of_the_code_and_not_of_the_place(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = golf.compose([*SMALL, "tech=[random_map]"])
    moved = tmp_path / "elsewhere"
    outside.rename(moved)
    monkeypatch.setenv("GOLF_IDEAS", str(moved))
    assert variant_id(golf.compose([*SMALL, "tech=[random_map]"])) == variant_id(first)
    # A page and a test are no code, a module beside the main one is.
    (moved / "random_map" / "README.md").write_text("A page.")
    (moved / "random_map" / "test_random_map.py").write_text("assert True")
    assert variant_id(golf.compose([*SMALL, "tech=[random_map]"])) == variant_id(first)
    refuse_changed(first.idea_code)
    signs = moved / "random_map" / "signs.py"
    signs.write_text(signs.read_text().replace("+ 1,", "+ 3,"))
    assert variant_id(golf.compose([*SMALL, "tech=[random_map]"])) != variant_id(first)
    assert "idea_code" not in to_dict(golf.compose(SMALL)), "runs without ideas keep their files and ids"
    with pytest.raises(GolfError, match=f"random_map has changed .*code {first.idea_code['random_map']}"):
        refuse_changed(first.idea_code)


def test_code_of_other_ideas_and_named_files_is_in_the_id(write: Callable[..., Path]) -> None:
    lender = write("lender", IDEA.format(name="lender"))
    (lender / "parts.py").write_text("HALF = 0.5\n")
    imports = "\nfrom ideas.lender.parts import HALF\n"
    borrower = write("borrower", IDEA.format(name="borrower") + imports + 'TABLE = "table.txt"\n')
    table, note = borrower / "table.txt", borrower / "note.txt"
    table.write_text("1 2 3")
    folder = f"ideas={borrower.parent}"
    seen = [variant_id(golf.compose([folder, *SMALL, "tech=[borrower]"]))]
    note.write_text("No line of code names this file.")
    assert variant_id(golf.compose([folder, *SMALL, "tech=[borrower]"])) == seen[0]
    for path, text in ((lender / "parts.py", "HALF = 0.25\n"), (table, "4 5 6")):
        path.write_text(text)
        seen.append(variant_id(golf.compose([folder, *SMALL, "tech=[borrower]"])))
    assert len(set(seen)) == 3
    assert ideas()["borrower"].code()[borrower] == [borrower / "borrower.py", table]
    assert outside_folders(["borrower"]) == [borrower, lender]


def test_an_edit_that_changes_settings_is_refused(write: Callable[..., Path]) -> None:
    folder = write("writer", IDEA.format(name="writer") + "        self.factor = self.factor / 2\n")
    with pytest.raises(GolfError, match="technique writer changes its settings in edit_model"):
        golf.build_model(golf.compose([f"ideas={folder}", *SMALL, "tech=[writer]"]))


def test_a_setting_that_nothing_reads_is_named(write: Callable[..., Path]) -> None:
    unread = IDEA.replace("    factor:", "    spare: int = 3\n    factor:")
    folder = write("keeper", unread.format(name="keeper"))
    said = warnings(golf.compose([f"ideas={folder}", *SMALL, "tech=[keeper,ln_scale]"]))
    assert [line for line in said if "no line of the idea's code" in line] == [
        "no line of the idea's code reads tech.keeper.spare: runs with other values of it are equal but for their ids"
    ]


def test_a_value_error_of_an_edit_is_placed_in_the_idea(write: Callable[..., Path]) -> None:
    folder = write("picky", IDEA.format(name="picky") + "        raise ValueError('too steep')\n")
    with pytest.raises(ValueError, match="too steep") as raised:
        shapeless_model(golf.compose([f"ideas={folder}", *SMALL, "tech=[picky]"]))
    assert re.search(r"composed: too steep .picky.py, line \d+, with the idea picky.$", explain(raised.value))


def test_the_command_line_reads_the_folder(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLF_IDEAS", "")
    for override in (f"ideas={outside}", f"ideas=[{outside / 'delta_rule'},{outside / 'random_map'}]"):
        monkeypatch.setenv("GOLF_IDEAS", "")
        refuse_mistakes([override, "tech=[delta_rule]"])
        assert golf.compose([override, *SMALL, "tech=[delta_rule]"]).idea_code.keys() == {"delta_rule"}
    with pytest.raises(GolfError, match=r"no setting tech.random_map.rnk; did you mean rank"):
        refuse_mistakes(["tech=[random_map]", "tech.random_map.rnk=3"])
    with pytest.raises(GolfError, match="no technique random_mop; did you mean random_map"):
        refuse_mistakes(["tech=[random_mop]"])
    done = golf_main(f"ideas={outside / 'nothing'}", "tech=[delta_rule]")
    assert done.returncode == 2 and "nothing has no idea: one is a folder NAME" in done.stderr
    # A folder that is refused is forgotten.
    assert str(outside / "nothing") not in __import__("os").environ["GOLF_IDEAS"]


def test_help_knows_them(outside: Path) -> None:
    assert "random_map" in options_of("tech")
    [group] = [group for group in found("") if group.name == "tech.random_map"]
    assert [setting.key for setting in group.settings] == ["tech.random_map.rank", "tech.random_map.map_seed"]


@pytest.mark.slow
def test_the_script_has_their_code_and_its_bytes_are_counted(outside: Path) -> None:
    cfg, plain = golf.compose([*SMALL, "tech=[random_map]"]), golf.compose(SMALL)
    script = Bundle(cfg).readable
    assert "class MappedMLP(" in script and "def signs(" in script and "from .signs" not in script
    assert "class MappedMLP(" not in Bundle(plain).readable
    assert estimated_code_bytes(cfg) > estimated_code_bytes(plain) + 100
    # An edit of the module beside the main one is seen, too.
    before = estimated_code_bytes(cfg)
    signs = outside / "random_map" / "signs.py"
    signs.write_text(signs.read_text() + f"\n\nUNUSED = {list(range(1000))}\n")
    assert estimated_code_bytes(golf.compose([*SMALL, "tech=[random_map]"])) > before


def test_files_written_with_an_idea_that_is_not_here_say_so(
    outside: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cfg = golf.compose([*SMALL, "tech=[delta_rule]"])
    values, header = to_dict(cfg), write_header(cfg.model, cfg.tech, [])
    assert from_dict(Config, values) == cfg
    monkeypatch.setenv("GOLF_IDEAS", "")
    technique_types().pop("delta_rule")
    with pytest.raises(MissingError, match=f"delta_rule here.*the code {cfg.idea_code['delta_rule']}.*GOLF_IDEAS"):
        from_dict(Config, values)
    with pytest.raises(MissingError, match="delta_rule"):
        refuse_changed(cfg.idea_code)
    with pytest.raises(MissingError, match="delta_rule"):
        read_model(read_header(header, {})[0])


def test_the_written_command_names_the_folder(outside: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    describe(folder, golf.compose([*SMALL, "tech=[delta_rule,xsa]"]), ["golf/train.py", "seed=1"])
    written = json.loads((folder.path / "environment.json").read_text())["command"]
    assert written == ["golf/train.py", "seed=1", f"ideas={outside / 'delta_rule'}"]
    describe(folder, golf.compose([*SMALL, "tech=[normuon]"]), ["golf/train.py", "seed=1"])
    assert json.loads((folder.path / "environment.json").read_text())["command"] == ["golf/train.py", "seed=1"]


def test_an_artifact_in_the_number_format_of_an_idea_names_the_idea(
    forgotten: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_idea("format", "halves", tmp_path / "halves")
    use_ideas([str(tmp_path / "halves")])
    cfg = golf.compose([*SMALL, "tech=[halves]", "quant.mlp.format=halves", "quant.small_numel=0"])
    w = torch.randn(4, 64)
    coded = golf.quantize({"blocks.0.mlp.fc.weight": w}, cfg.quant, tech=cfg.tech)
    (tmp_path / "a.golf").write_bytes(pack(coded, cfg.model, cfg.quant, cfg.tech))
    (back,) = load(tmp_path / "a.golf").state_dict().values()
    assert torch.equal(back.abs() / back.abs().amin(1, keepdim=True) % 2, torch.ones(4, 64))
    # Beside the configuration of its run, an artifact is not read with other code.
    (tmp_path / "config.json").write_text(json.dumps({"idea_code": {"halves": "0123456789ab"}}))
    with pytest.raises(GolfError, match=r"halves has changed .*code 0123456789ab"):
        load(tmp_path / "a.golf")
    assert load(tmp_path / "a.golf", by_its_run=True).tech == cfg.tech
    for unreadable in ("", "[]", '{"idea_co'):
        (tmp_path / "config.json").write_text(unreadable)
        assert load(tmp_path / "a.golf").tech == cfg.tech
    monkeypatch.setenv("GOLF_IDEAS", "")
    technique_types().pop("halves")
    with pytest.raises(MissingError, match="golf cannot be opened: There is no technique halves here"):
        load(tmp_path / "a.golf")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "cannot be imported .SyntaxError"),
        ("import sys\nsys.exit(0)\n", "cannot be imported .SystemExit: 0"),
        ("import a_package_that_is_not_here\n", "cannot be imported .ModuleNotFoundError: No module named"),
        ("x = 1\n", 'registers no technique faulty: put @technique."faulty". and @dataclass above its class'),
    ],
)
def test_a_faulty_idea_is_named_where_it_is_selected_alone(text: str, said: str, write: Callable[..., Path]) -> None:
    folder = write("faulty", text)
    # Any other run goes on.
    assert golf.compose([f"ideas={folder}", *SMALL, "tech=[xsa]"]).tech.keys() == {"xsa"}
    with pytest.raises(GolfError, match=said):
        golf.compose([*SMALL, "tech=[faulty]"])
    with pytest.raises(GolfError, match=said):
        refuse_mistakes(["tech=[faulty]"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("matrix_rule = None", "matrix_rule acts with effect = CHANGES_STEP alone: set it, or make two ideas"),
        ('effect = "step"', "edit_model is not scored with effect = CHANGES_STEP: make two ideas"),
        ('effect = "order"', "effect = CHANGES_ORDER needs the method data_order: write it"),
        ("def before_steps(self): ...", "before_steps is no seam: did you mean before_step?"),
        ('require = ("xsa",)', "require is no seam: did you mean requires?"),
        ('groups = ("*.gate", "scalar")', "groups has to be pairs of a pattern and one of embed"),
        ('groups = (("*.gate", "gain"),)', "groups has to be pairs of a pattern and one of embed"),
    ],
)
def test_seams_that_would_not_be_called_are_refused(line: str, said: str, write: Callable[..., Path]) -> None:
    folder = write("faulty", IDEA.format(name="faulty") + f"    {line}\n")
    with pytest.raises(GolfError, match=said):
        golf.compose([f"ideas={folder}", *SMALL, "tech=[faulty]"])


FORGOT = """
    effect = "loss"

    def edit_model(self, model, cfg):
        pass

    def training_terms(self, cfg):
        [lambda done: done.nats.square().mean()]
"""


def test_a_seam_without_return_is_named_with_its_technique(write: Callable[..., Path]) -> None:
    folder = write("forgot", IDEA.format(name="forgot") + FORGOT)
    cfg = golf.compose([f"ideas={folder}", *SMALL, "tech=[forgot]"])
    with pytest.raises(GolfError, match="training_terms of the technique forgot returns nothing"):
        golf.build_model(cfg)


def test_a_crash_is_placed_in_the_idea(write: Callable[..., Path]) -> None:
    folder = write("breaks", IDEA.format(name="breaks") + "    def acts_after(self):\n        return 1 // 0\n")
    chosen = golf.compose([f"ideas={folder}", *SMALL, "tech=[breaks]"]).tech["breaks"]
    with pytest.raises(ZeroDivisionError) as broken:
        chosen.acts_after()
    line = broken.traceback[-1].lineno + 1
    assert place_of(broken.value, ["breaks", "xsa"]) == f" (breaks.py, line {line}, with the idea breaks)"
    assert place_of(broken.value, ["xsa"]) == place_of(broken.value, ["breaks"])
    with pytest.raises(TypeError) as outside:
        sum(["text"])  # type: ignore[list-item]
    assert place_of(outside.value, ["breaks"]).startswith(" (test_idea_folders.py, line ")
    assert place_of(outside.value, ["xsa"]) == ""


def test_a_technique_above_a_fault_in_its_module_is_not_taken(write: Callable[..., Path]) -> None:
    folder = write("faulty", IDEA.format(name="faulty") + "1 / 0\n")
    with pytest.raises(GolfError, match=r"The idea faulty in .* cannot be imported .ZeroDivisionError"):
        golf.compose([f"ideas={folder}", *SMALL, "tech=[faulty]"])


def test_two_techniques_in_one_module_are_told_to_part(write: Callable[..., Path]) -> None:
    second = IDEA.format(name="duo_b").replace("class Idea", "class Other")
    folder = write("duo", IDEA.format(name="duo") + second)
    with pytest.raises(GolfError, match="The technique duo_b stands in the module of another idea: move it"):
        golf.compose([f"ideas={folder}", *SMALL, "tech=[duo,duo_b]"])


def test_an_idea_imports_from_another_s_folder_before_that_one_is_loaded(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    borrowed = "from ideas.leaky_relu.leaky_relu import LeakyReluSquared\n"
    monkeypatch.setenv("GOLF_IDEAS", str(write("borrower", borrowed + IDEA.format(name="borrower"))))
    for name in [n for n in sys.modules if n.startswith("ideas.leaky_relu")]:
        monkeypatch.delitem(sys.modules, name)
    # `golf idea check` asks for one idea alone.
    assert fault(ideas()["borrower"]) == ""


def test_values_that_are_no_yaml_are_one_sentence(write: Callable[..., Path]) -> None:
    folder = write("valued", IDEA.format(name="valued"))
    (folder / "valued.yaml").write_text("factor: [1,\n")
    # Any other run goes on.
    assert golf.compose([f"ideas={folder}", *SMALL, "tech=[xsa]"]).tech.keys() == {"xsa"}
    with pytest.raises(GolfError, match=r"valued.yaml cannot be read as settings .while parsing"):
        golf.compose([*SMALL, "tech=[valued]"])
    (folder / "valued.yaml").write_text("factor: 0.25\n")
    assert golf.compose([*SMALL, "tech=[valued]"]).tech["valued"].factor == 0.25


def test_two_ideas_of_one_name_are_refused_with_both_places(write: Callable[..., Path]) -> None:
    one, other = (write("twin", IDEA.format(name="twin"), place) for place in ("one", "other"))
    use_ideas([str(one)])
    with pytest.raises(GolfError, match=f"Two ideas are called twin: {one} and {other}"):
        use_ideas([str(other)])
    with pytest.raises(GolfError, match="called like a technique of golf"):
        use_ideas([str(write("xsa", IDEA.format(name="xsa")))])


def test_an_installed_package_names_its_ideas(forgotten: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, info = tmp_path / "their_package", tmp_path / "their_package-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "factors.py").write_text("HALF = 0.5\n")
    text = (
        IDEA.format(name="installed")
        .replace("= 0.5", "= HALF")
        .replace("\n@", "\nfrom their_package.factors import HALF\n\n@", 1)
    )
    (package / "norms.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[golf.ideas]\ninstalled = their_package.norms\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from golf import idea_folders

    idea_folders._ideas.cache_clear()
    idea_folders.use_ideas([])
    cfg = golf.compose([*SMALL, "tech=[installed]"])
    assert cfg.tech["installed"].factor == 0.5 and idea_of(type(cfg.tech["installed"])) == ideas()["installed"]
    assert source_of("their_package.factors").name == "factors.py"
    idea_folders._ideas.cache_clear()


@pytest.mark.slow
def test_a_snapshot_for_jobs_holds_them(outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outside / "random_map" / "data.bin").write_bytes(b"no code")
    (outside / "random_map" / "named.txt").write_text("0.5")
    main = outside / "random_map" / "random_map.py"
    main.write_text(main.read_text() + '\n\nNAMED = "named.txt"\n')
    without = snapshot.code_digest()
    copied = snapshot.take_snapshot(tmp_path / "snapshots")
    assert copied.name == without
    files = {path.name for path in (copied / "ideas" / "random_map").iterdir()}
    assert files == {"random_map.py", "signs.py", "random_map.yaml", "named.txt"}
    # Jobs run the copy, whatever happens to the folder that the command named.
    signs = outside / "random_map" / "signs.py"
    signs.write_text(signs.read_text() + "CHANGED = 1\n")
    code = (
        "import golf; cfg = golf.compose(['model=4l', 'scale=laptop', 'tech=[random_map]']); "
        "from golf.idea_folders import ideas; print(ideas()['random_map'].folder, cfg.idea_code['random_map'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=copied, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder, digest = done.stdout.split()
    assert folder == str(copied / "ideas" / "random_map")
    assert digest != ideas()["random_map"].digest() and snapshot.code_digest() != without


def test_a_changed_default_of_an_idea_is_a_setting(write: Callable[..., Path]) -> None:
    write("second", IDEA.format(name="second"))
    cfg = golf.compose(
        [f"ideas={write('first', IDEA.format(name='first'))}", *SMALL, "tech=[first]", "tech.first.factor=0.7"]
    )
    assert dataclasses.asdict(cfg.tech["first"]) == {"factor": 0.7}


def test_techniques_that_do_not_fit_together_are_one_sentence(outside: Path) -> None:
    # XSA edits the attention that the delta rule has replaced.
    with pytest.raises(GolfError, match=r"delta_rule, xsa do not fit together .*output_hooks.*: drop one"):
        shapeless_model(golf.compose([*SMALL, "tech=[delta_rule,xsa]"]))


def test_an_idea_whose_folder_has_vanished_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(GolfError, match=r"The idea gone is no longer in .*gone: put it back"):
        Idea("gone", tmp_path / "gone", "ideas.gone.gone").digest()
