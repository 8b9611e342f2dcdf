"""A campaign: candidates tried one after the other against the best so far, the incumbent (`golf keep`).

Its file, `<runs root>/sweeps/<name>.keep.json`, has the start and every try. The incumbent follows from them, and runs
are in the run folders, so that a killed command goes on as a killed sweep does.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import DAMAGED, read_json, write_json
from golf.lab.report.keeping import KEEP
from golf.run.folder import runs_root
from golf.run.locks import try_lock
from golf.settings.bundles import names_in

SEED_OF_SEARCH = 1  # of all greedy tries: `bench.keeps` has what new seeds after each keep would cost
SEEDS_OF_A_KEEP = 100  # of rounds, from one keep to the next
FIRST_OF_CONFIRMATIONS = 1_000_001  # far beyond those of any search
NOT_OF_A_CANDIDATE = re.compile(
    r"[+~]*(seed|name|note|ideas|launch|rules|track|sweep|cluster|eval|data\.val\w*|hydra)\b"
)
SEVERAL = re.compile(r"=[^\[({'\"]*,")  # a comma outside brackets and quotes


@dataclass(frozen=True)
class Try:
    """A candidate that was tried, with the decision on it."""

    overrides: list[str]  # what came on top of the incumbent
    decision: str  # KEEP, DISCARD or UNDECIDED
    incumbent: str  # id of the variant that it was compared with
    candidate: str
    in_rounds: bool  # False for one seed, which proves nothing
    p_alone: float | None = None  # one-sided p that it is better, of a sweep in rounds
    values: dict[str, Any] = field(default_factory=dict)  # of the decision, for programs


@dataclass
class Campaign:
    """Start, tries and confirmations of a search."""

    name: str
    base: list[str]  # overrides of the start
    techniques: list[str]  # of the start
    tries: list[Try] = field(default_factory=list)
    confirmations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def keeps(self) -> list[Try]:
        """Return the tries that were kept, in their order."""
        return [one for one in self.tries if one.decision == KEEP]

    @property
    def chain(self) -> list[list[str]]:
        """Return the overrides of each keep."""
        return [one.overrides for one in self.keeps]

    def known(self, candidate: str, in_rounds: bool) -> Try | None:
        """Return the try of a variant that was made in this way; None if there is none."""
        return next((t for t in self.tries if (t.candidate, t.in_rounds) == (candidate, in_rounds)), None)

    @property
    def confirmation(self) -> dict[str, Any] | None:
        """Return what was found of the chain as it is; None before it was confirmed."""
        chain = self.chain
        return next((c for c in self.confirmations if [one["overrides"] for one in c["keeps"]] == chain), None)

    def together(self, bundles: Iterable[Sequence[str]]) -> list[str]:
        """Return the overrides of the start with `bundles` on top of it, without those of the start.

        A later value takes the place of an earlier one. Techniques, and what `drop` leaves out, come on top.
        """
        found: dict[str, str] = {}
        for override in (override for bundle in bundles for override in bundle):
            key, _, value = override.partition("=")
            if key in ("tech", "drop"):
                known = found.get(key, "") or (",".join(self.techniques) if key == "tech" else _of_start(self.base))
                value = f"[{','.join(dict.fromkeys(names_in(known) + names_in(value)))}]"
            found[key] = value
        return [f"{key}={value}" for key, value in found.items()]

    def seeds(self, count: int) -> list[int]:
        """Return seeds of rounds. Each keep brings new ones, so that no incumbent is judged by the luck it won by."""
        first = (1 + len(self.keeps)) * SEEDS_OF_A_KEEP + 1
        return list(range(first, first + count))

    def fresh_seeds(self, count: int) -> list[int]:
        """Return seeds that no choice of the campaign was made by."""
        first = FIRST_OF_CONFIRMATIONS + len(self.confirmations) * SEEDS_OF_A_KEEP
        return list(range(first, first + count))


def _of_start(base: Sequence[str]) -> str:
    return next((o.partition("=")[2] for o in reversed(base) if o.startswith("drop=")), "")


def check_base(overrides: Sequence[str]) -> None:
    """Raise `GolfError` for a start that says what `golf keep` says itself."""
    for override in overrides:
        if match := re.match(r"[+~]*(seed|sweep|hydra|launch\.fresh)\b", override):
            raise GolfError(f"{override} cannot be in the start of a campaign: golf keep chooses {match[1]} itself.")


def check_candidate(overrides: Sequence[str]) -> None:
    """Raise `GolfError` for an override that changes no model: a seed, or how a run is measured or carried out."""
    for override in overrides:
        if SEVERAL.search(override):
            raise GolfError(f"{override} lists several values: a candidate is one, so try them one after the other.")
        if override.startswith("~"):
            raise GolfError(f"{override} takes something out of a preset: write drop=[{override.rpartition('.')[2]}].")
        if match := NOT_OF_A_CANDIDATE.match(override):
            raise GolfError(
                f"{override} is no part of a candidate: {match[1]} decides how runs are made or measured; "
                "a campaign has the same for all, in its --base."
            )


def path_of(name: str) -> Path:
    """Return the file of a campaign. Raises `GolfError` for a name that is none of a file."""
    if not re.fullmatch(r"[\w-]+", name):
        raise GolfError(f"--campaign {name!r} cannot name a file: use letters, digits, _ and -.")
    return runs_root() / "sweeps" / f"{name}.keep.json"


def read_campaign(name: str) -> Campaign | None:
    """Return the campaign; None before its start. Raises `GolfError` if its file cannot be read."""
    path = path_of(name)
    try:
        values = read_json(path)
        return Campaign(**{**values, "tries": [Try(**one) for one in values["tries"]]})
    except FileNotFoundError:
        return None
    except DAMAGED as error:
        raise GolfError(f"{path} is not a campaign of golf keep ({error}).") from error


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the campaign for the block, so that of two processes each sees what the other has recorded."""
    while (lock := try_lock(f"{name}.keep")) is None:
        time.sleep(0.05)
    with lock:
        yield


def write_campaign(campaign: Campaign) -> None:
    """Write the file of the campaign."""
    write_json(path_of(campaign.name), asdict(campaign))
