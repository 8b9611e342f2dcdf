"""Documents that list what is in the repository list all of it."""

import re

import yaml

from tests.support import ROOT


def test_negative_results_are_listed_in_the_sweep_and_in_the_document() -> None:
    presets = {f"negative/{p.stem}" for p in (ROOT / "conf/experiment/negative").glob("*.yaml")}
    sweep = yaml.safe_load((ROOT / "conf/sweep/negative_results.yaml").read_text())
    swept = {name.strip() for name in sweep["hydra"]["sweeper"]["params"]["experiment"].split(",")}
    assert swept - presets == {"pr593_11l"} and presets <= swept
    named = re.findall(r"`(\w+)`", (ROOT / "docs/negative_results.md").read_text())
    assert {name.removeprefix("negative/") for name in presets} <= set(named)


def test_every_file_that_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text()
    paths = re.findall(r"(?:docs|scripts|tests|golf|conf)/[\w/]+\.(?:py|md|yaml)", text)
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []
