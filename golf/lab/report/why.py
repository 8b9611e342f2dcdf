"""`golf why RECORD` and `golf why A B`: the settings in which two runs, variants or lists of overrides differ."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from golf.errors import GolfError
from golf.files import DAMAGED, read_json
from golf.lab.report.difference import Difference, differences, environment_differences
from golf.lab.report.public_records import parent_of
from golf.lab.report.store import begun_variant
from golf.run.folder import runs_root
from golf.run.identity import variant_id
from golf.settings.composition import compose
from golf.settings.config import Config, from_dict
from golf.words import answer

USAGE = 'Name a record, or two of run folder, variant and quoted overrides ("model=11l seed=2").'


@dataclass(frozen=True)
class Side:
    """One side of the comparison."""

    cfg: Config
    folder: Path | None = None  # run folder; None for overrides and variants


def why(arguments: Sequence[str], *, as_json: bool = False) -> int:
    """Print the difference and return 0. Raises `GolfError` if a side cannot be found or composed."""
    if len(arguments) == 1:
        arguments = with_parent(arguments[0])
    if len(arguments) != 2:
        raise GolfError(USAGE)
    scaled = [re.search(r"(?<!\S)scale=\S+", text) for text in arguments]
    if (named := scaled[0] or scaled[1]) and not all(scaled) and all("=" in text for text in arguments):
        raise GolfError(f'Quote each side whole, as in "experiment=A {named[0]}" "experiment=B {named[0]}".')
    one, other = side(arguments[0]), side(arguments[1])
    if as_json:
        variant, besides = ({d.key: (d.one, d.other) for d in found} for found in differences(one.cfg, other.cfg))
        print(
            answer(
                {"variant_ids": [variant_id(one.cfg), variant_id(other.cfg)], "differs": variant, "besides": besides}
            )
        )
        return 0
    print("\n".join(explained(one, other)))
    return 0


def with_parent(record: str) -> tuple[str, str]:
    """Return overrides of what a record of docs/records.md builds on, and its own. Raises `GolfError` for others."""
    experiment = f"records/{record.removeprefix('experiment=').removeprefix('records/')}"
    return f"experiment={parent_of(experiment)} scale=record", f"experiment={experiment} scale=record"


def side(text: str) -> Side:
    """Return the side that `text` names: a path, a variant id or overrides. Raises `GolfError` if it names nothing."""
    path = Path(text).expanduser()
    # Unlike the method of a path, this is false for overrides too long to be a name.
    if os.path.exists(path) and text:  # noqa: PTH110
        return _of_folder(path)
    if text and re.fullmatch(r"[\w.+-]+", text):
        if not (folders := begun_variant(text)):
            raise GolfError(f"There is no variant {text} in {runs_root()}; imported runs have no settings.")
        return _of_folder(folders[0])
    try:
        overrides = shlex.split(text)
    except ValueError as error:
        raise GolfError(f"The overrides {text} cannot be read: {error}.") from error
    return Side(compose(overrides))


def _of_folder(path: Path) -> Side:
    """Return the side of a run folder, a file in it, or a variant's folder."""
    # All runs of a variant have the same configuration but for the seed, so the first one stands for the variant.
    for folder in (path, path.parent, *sorted(path.glob("seed*"))):
        if (folder / "config.json").is_file():
            try:
                cfg = from_dict(Config, read_json(folder / "config.json"))
            except DAMAGED as error:
                raise GolfError(f"{folder / 'config.json'} cannot be read ({error}).") from error
            return Side(cfg, folder if path == folder or path.parent == folder else None)
    raise GolfError(f"{path} is not the folder of a run or a variant: there is no config.json in it.")


def explained(one: Side, other: Side) -> list[str]:
    """Return the lines of the comparison: settings that make two variants, then all other differences."""
    variant, besides = differences(one.cfg, other.cfg)
    ids = variant_id(one.cfg), variant_id(other.cfg)
    lines = [f"one variant, {ids[0]}" if not variant else f"two variants, {ids[0]} and {ids[1]}: they differ in"]
    lines += [*map(_shown, variant), *_section("different, but no part of the variant:", besides)]
    if one.folder and other.folder:
        with contextlib.suppress(*DAMAGED):
            lines += _section("made with:", environment_differences(one.folder, other.folder))
    return lines


def _section(title: str, differences: Sequence[Difference]) -> list[str]:
    return [title, *map(_shown, differences)] if differences else []


def _shown(difference: Difference) -> str:
    return f"  {difference.key}: {_value(difference.one)} → {_value(difference.other)}"


def _value(value: object) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)
