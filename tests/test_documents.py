"""Documents: what they list is complete, their links lead somewhere, and their commands compose or parse."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep

import golf
from golf.commands import cli
from golf.errors import GolfError
from golf.field.env_vars import translate
from golf.idea_folders import ideas
from golf.lab.corpora.own_text import OwnDataset
from golf.registry import technique_types
from golf.run.identity import variant_id
from golf.settings.bundles import bundles_given, on_top
from golf.training.techniques.base import Technique
from tests.support import ROOT, compose, golf_command, golf_main, only_run, tiny_overrides
from tests.test_layers import CORE, PRODUCTS

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "AGENTS")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
HISTORY = ROOT / "docs/benchmarks_log.md"  # its commands are those of their day
SHELL_BLOCK = re.compile(r"^```(?:bash|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ANY_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INDENTED_LINE = re.compile(r"^ {4}((?:python|golf|make|pip) .*)$", re.MULTILINE)
INLINE_CODE = re.compile(r"`([^`]+)`")
QUOTED_OR_COMMENT = re.compile(r"'[^']*'|\"[^\"]*\"|(?:^|\s)#.*")
PROGRAMS = ("python ", "golf ", "pip install", "make ")
NOT_OURS = {".", "wandb", "script", "ssh"}  # commands of the shell and of other packages
FLAGS = {"-m", "--multirun", "--cfg", "job", "--dry-run", "--json"}
RUNS_FOR_REAL = {"inspect", "quant-gap", "plan", "power", "ledger", "from-env", "report", "why"}


class ParsedError(Exception):
    """Raised in place of a script's work, once its arguments are parsed."""


def page_names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def commands(page: Path) -> list[str]:
    """Return the shell commands of a page: lines of shell blocks, indented lines, and inline code that names one."""
    text = page.read_text()
    lines = [line for block in SHELL_BLOCK.findall(text) for line in block.splitlines()]
    rest = ANY_BLOCK.sub("", text)
    inline = [" ".join(code.split()) for code in INLINE_CODE.findall(rest)]
    inline = [
        code for code in inline if code.startswith(("python ", "golf ", "pip install", "make ")) and "…" not in code
    ]
    inline = [code for code in inline if len(code.split()) > 2 or code.startswith("make")]  # else it names a script
    found = [line for line in [*lines, *INDENTED_LINE.findall(rest), *inline] if line.strip()]
    # A page may keep overrides in a variable of the shell, and send output into files.
    variables = dict(re.findall(r'^(\w+)="(.*)"$', rest + "\n".join(lines), re.MULTILINE))
    found = [line for line in found if not re.match(r"(export )?\w+=", line)]
    for name, value in variables.items():
        found = [line.replace(f"${name} ", f"{value} ").replace(f'"${name}"', f'"{value}"') for line in found]
    return [re.sub(r" \d?>\S+", "", line) for line in found]


def check_command(command: str) -> None:
    """Raise an error for a command that would not start: unknown names, values that do not compose, wrong options."""
    match shlex.split(command, comments=True):
        case ["python", "golf/train.py", *arguments]:
            check_training(arguments)
        case ["golf", *words]:
            command = next(name for name in (" ".join(words[:2]), words[0]) if name in cli.COMMANDS)
            check_golf(command, words[len(command.split()) :])
        case ["python", script, *_] if script.startswith("scripts/"):
            assert (ROOT / script).exists()
        case ["python", "-m", module, *_] if module.startswith("bench."):
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
        case ["python", "-m", "pytest", *arguments]:
            assert all((ROOT / path).exists() for path in arguments if path.startswith("tests"))
        case ["make", target, *arguments]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
            assert all(argument.startswith(("ARGS=", "PYTHON=")) for argument in arguments)
        case ["pip", "install", "-e", package]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert package.removeprefix(".").strip("[]") in extras
        case [program, *_] if program not in NOT_OURS:
            raise AssertionError(f"no check is known for {program}")


def check_training(arguments: list[str]) -> None:
    if arguments in (["--help"], ["-h"]):
        return
    rest, bundles = bundles_given(arguments)
    for combination in combinations([a for a in rest if a not in FLAGS]):
        for bundle in bundles or [[]]:
            compose(on_top(combination, bundle))


def combinations(overrides: list[str]) -> list[list[str]]:
    """Return the overrides of a sweep's first and last job, or the overrides themselves."""
    named = next((o.partition("=")[2] for o in overrides if o.lstrip("+").startswith("sweep=")), None)
    swept = swept_by(named) if named else []
    parsed = OverridesParser.create().parse_overrides([*overrides, *swept])
    ends: list[list[str]] = [[], []]
    for override in parsed:
        found = override.value()
        # A searcher takes any number between the ends of an interval.
        is_listed = override.is_sweep_override() and not isinstance(found, IntervalSweep)
        values = list(override.sweep_string_iterator()) if is_listed else []
        if isinstance(found, IntervalSweep):
            values = [str(found.start), str(found.end)]
        key = override.get_key_element()
        for end, index in zip(ends, (0, -1), strict=True):
            end.append(f"{key}={values[index]}" if values else str(override.input_line))
    return ends if ends[0] != ends[1] else ends[:1]


def swept_by(name: str) -> list[str]:
    """Return what conf/sweep/NAME.yaml sweeps over, without what it computes from the configuration."""
    values = yaml.safe_load((ROOT / f"conf/sweep/{name}.yaml").read_text())
    params = values["hydra"].get("sweeper", {}).get("params", {})
    return [f"{key}={value}" for key, value in params.items() if "${" not in str(value)]


def check_golf(command: str, arguments: list[str]) -> None:
    if command in ("train", "submit"):
        check_training(arguments)
    elif command in ("status", "cancel", "follow"):
        names = [a for a in arguments if not a.startswith("--")]
        assert len(names) == 1 or (command == "status" and not names)
    elif command != "bench":  # a script of its own, which measures
        with pytest.raises(ParsedError) as caught:
            cli.main([*command.split(), *arguments])
        check_parsed(caught.value.args[0])


def check_parsed(options: argparse.Namespace) -> None:
    """Compose what a script would compose from its options."""
    check_training(getattr(options, "overrides", []))
    if line := getattr(options, "line", ""):
        translate(line)
    presets = getattr(options, "presets", None) or []
    if isinstance(presets, str):
        # Of `golf gpu-check`; those of `golf quant-gap` are number formats.
        check_training([f"experiment={presets}"])
    else:
        for preset in presets:
            compose([f"quant={preset.split()[0]}", *preset.split()[1:]])


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """End every script as soon as its arguments are parsed."""

    def stopping(parse: Callable[..., argparse.Namespace]) -> Callable[..., Any]:
        def parse_and_stop(*args: Any, **kwargs: Any) -> Any:
            raise ParsedError(parse(*args, **kwargs))

        return parse_and_stop

    for method in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, method, stopping(getattr(argparse.ArgumentParser, method)))


def test_every_command_of_the_readme_composes_or_parses(runs: Path, parse_only: None) -> None:
    assert wrong_commands("README.md") == []


# Hundreds of compositions take a fifth of a second each.
@pytest.mark.slow
@pytest.mark.parametrize("page", page_names([page for page in PAGES[1:] if page != HISTORY]))
def test_every_command_composes_or_parses(page: str, runs: Path, parse_only: None) -> None:
    assert wrong_commands(page) == []


def wrong_commands(page: str) -> list[str]:
    """Return the commands of `page` that do not compose or parse, each with its error."""
    wrong = []
    for command in commands(ROOT / page):
        try:
            check_command(command)
        except (Exception, SystemExit) as error:
            wrong.append(f"{command}: {type(error).__name__} {error}")
    return wrong


def test_commands_that_are_wrong_are_found(runs: Path, parse_only: None) -> None:
    for command in ("python golf/train.py modle=9l", "python golf/train.py -m seed=1,2 quant=int8,int77"):
        with pytest.raises(GolfError):
            check_command(command)
    with pytest.raises(pytest.fail.Exception):  # it ends with status 2 before it has parsed anything
        check_command("golf report lower_lr --rulse strict")
    with pytest.raises(AssertionError):
        check_command("make tset")


def test_zsh_can_paste_every_command() -> None:
    """Outside quotes zsh takes brackets, and asterisks in an override, for patterns of file names."""
    wrong = []
    for page in PAGES:
        overrides = re.findall(r"`(\S+=\S[^`]*)`", ANY_BLOCK.sub("", page.read_text()))
        for command in [*commands(page), *overrides]:
            bare = QUOTED_OR_COMMENT.sub(" ", command).replace("…", "")
            if re.search(r"^[^=]*[\[\]()]|=\S*[\[\]()*?]", bare):
                wrong.append(f"{page.relative_to(ROOT)}: {command}")
    assert wrong == []


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    wrong = []
    for page in [*PAGES, ROOT / "CHANGELOG.md", ROOT / "multirun/README.md"]:
        text = ANY_BLOCK.sub("", page.read_text())
        for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text):
            path, _, heading = "".join(link).partition("#")
            target = page.parent / path if path else page
            if path.startswith("http"):
                continue
            if not target.exists() or (heading and heading not in headings(target)):
                wrong.append(f"{page.relative_to(ROOT)}: {''.join(link)}")
    assert wrong == []


def test_pictures_in_html_reach_the_site() -> None:
    site = runpy.run_path(str(ROOT / "scripts/dev/build_docs.py"))
    shown = [
        (page, file) for page in site["pages"]() for file in re.findall(r'src="([^"]+)"', (ROOT / page).read_text())
    ]
    assert shown and all((page.parent / file) in site["linked_files"](page) for page, file in shown)


def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_file_that_a_document_names_exists() -> None:
    pattern = re.compile(r"(?<![\w./])(?:docs|scripts|tests|golf|conf|bench)/[\w/-]+\.(?:py|md|yaml|sh|svg|png)")
    named = {(page.name, path) for page in PAGES if page != HISTORY for path in pattern.findall(page.read_text())}
    assert named and sorted((page, path) for page, path in named if not (ROOT / path).exists()) == []


def test_generated_pages_are_up_to_date() -> None:
    pages: dict[Path, str] = runpy.run_path(str(ROOT / "scripts/dev/write_docs.py"))["pages"]()
    stale = [str(path.relative_to(ROOT)) for path, text in pages.items() if path.read_text() != text]
    assert stale == [], "run python scripts/dev/write_docs.py"


def test_every_technique_has_one_row() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]", (ROOT / "docs/techniques.md").read_text(), re.MULTILINE)
    # Golf's own techniques, and the ideas that several presets use.
    own = set(technique_types()) - set(ideas())
    assert len(rows) == len(set(rows)) and own <= set(rows) <= set(technique_types())


def test_every_idea_has_one_row_and_a_page() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(\1/README.md\)", (ROOT / "ideas/README.md").read_text(), re.MULTILINE)
    assert rows == sorted(ideas())
    for idea in ideas().values():
        assert (idea.folder / "README.md").read_text().startswith("# ")
        assert list(idea.folder.glob("test_*.py"))


def test_the_guide_names_the_seams_there_are() -> None:
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/adding_a_technique.md").read_text(), re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    seams = {*vars(Technique), *Technique.__annotations__}
    assert named and named - seams == set()


def test_the_readme_is_short_and_names_wings_and_presets() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert [wing for wing in [*CORE, *PRODUCTS] if f"  {wing}/ " not in text] == []
    presets = {path.stem for path in (ROOT / "conf/experiment").glob("*.yaml")}
    assert [preset for preset in presets if f"`{preset}`" not in text] == []


@pytest.mark.parametrize(("page", "folder"), [("quantization", "quant"), ("sweeps", "sweep"), ("sweeps", "scale")])
def test_a_page_names_every_option_of_its_group(page: str, folder: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text()
    assert [path.stem for path in (ROOT / "conf" / folder).glob("*.yaml") if f"`{path.stem}`" not in text] == []


def test_folders_of_the_first_run_have_its_id() -> None:
    cfg = compose(["scale=laptop", "model.compute_dtype=bf16", "optim.muon_dtype=bf16"])
    named = set()
    for page in (ROOT / "README.md", ROOT / "docs/submission.md", ROOT / "golf/commands/export_command.py"):
        named |= set(re.findall(r"(?:multirun|submissions)/([^/\s`]+-[0-9a-f]{8})\b", page.read_text()))
    assert named == {f"{cfg.name}-{variant_id(cfg)}"}


def test_the_library_page_uses_names_that_exist() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)
    compile(block, "docs/library.md", "exec")
    used = set(re.findall(r"golf\.(\w+)\(", block))
    assert used and used - set(golf.__all__) == set()


def test_negative_results_are_listed_in_the_sweep_and_in_the_document() -> None:
    presets = {f"negative/{p.stem}" for p in (ROOT / "conf/experiment/negative").glob("*.yaml")}
    sweep = yaml.safe_load((ROOT / "conf/sweep/negative_results.yaml").read_text())
    swept = {name.strip() for name in sweep["hydra"]["sweeper"]["params"]["experiment"].split(",")}
    # Its base is a record and not that of the sweep.
    assert swept - presets == {"pr593_11l"} and presets - swept == {"negative/adaptive_clip"}
    named = re.findall(r"`(\w+)`", (ROOT / "docs/studies/negative_results.md").read_text())
    assert {name.removeprefix("negative/") for name in presets} <= set(named)


@pytest.mark.slow
def test_a_handful_of_commands_runs(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    assert golf_main(*tiny_overrides(tiny)).returncode == 0
    folder = str(only_run(runs))
    table = tmp_path / "results.tsv"
    table.write_text("commit\tval_bpb\tstatus\na1\t1.3\tkeep\nb2\t1.2\tkeep\n")
    # Commands that together have every option of a subcommand; the others compose or parse above.
    chosen: dict[tuple[str, frozenset[str]], list[str]] = {}
    for command in (command for page in PAGES if page != HISTORY for command in commands(page)):
        words = shlex.split(command, comments=True)
        is_for_real = words[:1] == ["golf"] and RUNS_FOR_REAL & {*words[1:2]}
        if not is_for_real or {"FILE", "SWEEP", "A", "lr", "--html"} & {*words}:
            continue
        chosen[words[1], frozenset(word for word in words if word.startswith("--"))] = words
    wrong = []
    for (subcommand, options), words in chosen.items():
        if any(other == subcommand and options < more for other, more in chosen):
            continue
        words = [re.sub(r"^(RUN|lower_lr|loo09|multirun|num_layers_seed-\w+)\b", folder, word) for word in words]
        words = [str(table) if word == table.name else word for word in words]
        if (done := golf_command(*words[1:])).returncode:
            wrong.append(f"{shlex.join(words)}: {done.stderr}")
    assert not wrong, "\n".join(wrong)
    assert {name for name, _ in chosen} == RUNS_FOR_REAL
