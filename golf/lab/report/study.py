"""Studies: the runs of sweeps and folders, finished or not, grouped into variants with a reference."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.lab.report.changes import Flat, change, differing_keys, required_by, techniques_of, why_not_separable
from golf.lab.report.earlier_sweeps import Record, first_variant, runs_again, with_rivals
from golf.lab.report.imported_rows import find_imported, imported_variants
from golf.lab.report.rows import REFUSED, WAITING, RunRow, row_of
from golf.lab.report.sequential import SequentialPlan
from golf.lab.report.store import (
    RowOf,
    find_record,
    index_runs,
    other_records,
    root_of,
    run_folders,
    seed_of,
    seeds_asked,
    standing_row,
)
from golf.lab.report.variants import Variant
from golf.run.folder import runs_root
from golf.settings.bundles import key_of
from golf.settings.quoting import typed
from golf.tables import grouped
from golf.words import as_override

INTERACTION = "interaction"
ABLATIONS = ("leave_one_out", "add_one", INTERACTION)  # kinds whose variants are called by what they take or add
MOST_KEYS_IN_A_LABEL = 3
SEEDS_ADDED = "Seeds were added to those of the earlier sweep"  # begins the sentence on looks in between
SETTLED_BY_THE_MACHINE = ("eval.dtype", "model.attention", "model.compute_dtype", "optim.muon_dtype")


@dataclass(frozen=True)
class Study:
    """Variants and the reference that they are compared with."""

    title: str
    variants: tuple[Variant, ...]
    reference: Variant | None  # None if there is nothing to compare
    kind: str = ""  # kind of the sweep: grid, leave_one_out, …
    swept: tuple[str, ...] = ()  # keys in which the variants differ, if they are known
    command: str = ""  # command line of the sweep
    inseparable: Mapping[str, str] = field(default_factory=dict)  # variant id → why it shows no single effect
    notes: tuple[str, ...] = ()
    about_chosen: tuple[str, ...] = ()  # sentences on variants that earlier sweeps chose, for tables with verdicts
    plan: SequentialPlan | None = None  # None for a sweep of a fixed size
    stopped: tuple[str, ...] = ()  # names of sweeps in rounds whose runs are here: they ended when they were decided
    root: Path | None = None  # folder of all runs, with their sweeps; None for a study that was read from none
    row_of: RowOf = row_of  # by which its runs were read

    @property
    def labelled(self) -> bool:
        """Return whether the labels of the variants say all that differs between them."""
        return bool(self.swept) or self.kind in ABLATIONS


@dataclass
class _Asked:
    """A variant that a target asks for, before its runs are read."""

    name: str
    overrides: list[str]
    seeds: dict[int | None, list[Path]] = field(default_factory=dict)  # seed → folders of all attempts at it
    label: str = ""  # what tells it from the others, if a name does not


def read_study(targets: Sequence[str], reference: str | None = None, row_of: RowOf = row_of) -> Study:
    """Read sweeps by name or folder, variants and runs by folder, and imported submissions into one study.

    Runs may still be going. `row_of` reads the row of a run folder. Raises `GolfError` for a target that is nothing of
    these, or an unknown `reference`.
    """
    asked: dict[str, _Asked] = {}
    records = []
    imported: list[RunRow] = []
    roots = {root_of(target, runs_root()) for target in targets}
    # A sweep that was copied elsewhere has its runs and its earlier sweeps there.
    root = roots.pop() if len(roots) == 1 else runs_root()
    refused: list[Variant] = []
    for target in targets:
        if record := find_record(target, root):
            records.append(record)
            _ask_for_record(asked, record, index_runs(root_of(target, root)))
            refused += [_refused(number, entry, record) for number, entry in enumerate(record.get("refused", []))]
        elif rows := find_imported(target, root):
            imported += rows
        else:
            _ask_for_folders(asked, run_folders(Path(target), target), row_of)
    # Seeds are the repetitions within a variant, not something that variants differ in.
    swept = tuple(dict.fromkeys(key for record in records for key in record.get("swept", []) if key != "seed"))
    first = records[0] if records else {}
    names = [str(record["name"]) for record in records] or [Path(target).resolve().name for target in targets]
    kinds = {str(record.get("kind", "")) for record in records}
    others = other_records({str(record["name"]) for record in records}, root)
    study = Study(
        title=" + ".join(names),
        variants=(
            *(_variant(id, item, swept, row_of) for id, item in _as_bundles(asked, records, swept).items()),
            *refused,
            *imported_variants(imported),
        ),
        reference=None,
        kind=kinds.pop() if len(kinds) == 1 else "",
        swept=swept,
        command=typed(first.get("command", [])),
        notes=tuple(_about_peeking(asked, records, others, of_folders=len(records) < len(targets))),
        plan=SequentialPlan.of(first.get("sequential")) if len(targets) == 1 else None,
        root=root,
        row_of=row_of,
    )
    labelled = _labelled(study, reference or (study.plan.reference if study.plan else None) or first.get("reference"))
    # A record tells when its runs were chosen; folders are chosen now.
    created = min(str(r.get("created", "")) for r in records) if len(records) == len(targets) else None
    earlier = [r for r in others if created is None or str(r.get("created", "")) < created]
    return _with_earlier(labelled, records, earlier, root, row_of)


def study_of_record(record: Record, index: Mapping[str, list[Path]], row_of: RowOf) -> Study:
    """Return a sweep's study without labels, and without what other sweeps say about it."""
    asked: dict[str, _Asked] = {}
    _ask_for_record(asked, record, index)
    variants = tuple(_variant(id, item, (), row_of) for id, item in asked.items())
    reference = next((v for v in variants if v.id == reference_of_record(record)), None)
    return Study(str(record["name"]), variants, reference, plan=SequentialPlan.of(record.get("sequential")))


def reference_of_record(record: Record) -> str:
    """Return the id of the variant that a sweep's table compares the others with; empty for none."""
    plan = SequentialPlan.of(record.get("sequential"))
    return plan.reference if plan else first_variant(record)


def _with_earlier(study: Study, own: Sequence[Record], earlier: Sequence[Record], root: Path, row_of: RowOf) -> Study:
    """Return the study with what its own sweeps and earlier ones say about runs that count again."""
    index = index_runs(root)

    def read(id: str, seeds: set[int]) -> Variant:
        folders = [[f for f in index.get(id, []) if seed_of(f) == seed] for seed in sorted(seeds)]
        return Variant(id, id, tuple(standing_row(attempts, row_of) for attempts in folders if attempts))

    rounds = study.plan.seeds if study.plan else ()
    reference = study.reference.id if study.reference else ""
    variants, said = with_rivals(study.variants, reference, earlier, read, rounds)
    stopped = tuple(r["name"] for r in (*own, *earlier) if r.get("sequential") and runs_again(study.variants, r))
    chosen = next((v for v in variants if v.id == reference), None)
    return replace(study, variants=variants, reference=chosen, about_chosen=tuple(said), stopped=stopped)


def refused_variant(number: int, label: str, sentence: str) -> Variant:
    """Return a variant for a refused configuration, so that a table does not lose it; `sentence` is the error."""
    row = RunRow(f"refused {number}", label, state=REFUSED, reason=sentence)
    return Variant(row.variant, label, (row,))


def _refused(number: int, entry: Mapping[str, Any], record: Mapping[str, Any]) -> Variant:
    swept = {*record.get("swept", []), "seed"}
    kept = [o for o in entry["overrides"] if o.lstrip("+~").partition("=")[0] in swept]
    return refused_variant(number, " ".join(kept) or " ".join(entry["overrides"]), entry["error"])


def _ask_for_record(asked: dict[str, _Asked], record: Record, index: Mapping[str, list[Path]]) -> None:
    for run in record["runs"]:
        variant_id, seed = run["variant_id"], run["seed"]
        item = asked.setdefault(variant_id, _Asked(run.get("name", ""), list(run.get("overrides", []))))
        # All attempts at a seed; `standing_row` chooses among them.
        item.seeds[seed] = [folder for folder in index.get(variant_id, []) if seed_of(folder) == seed]


def _about_peeking(
    asked: Mapping[str, _Asked], records: Sequence[Record], others: Sequence[Record], *, of_folders: bool
) -> Iterable[str]:
    """Say which earlier sweeps had variants of these with fewer seeds, so that seeds were added after a look.

    Those of another label tell it only if they are reported together. Runs of folders are those of all their sweeps.
    """
    for record in (*records, *(others if of_folders else ())):
        now = {id: seeds for id, seeds in seeds_asked(record).items() if id in asked and seeds & asked[id].seeds.keys()}
        label = str(record["name"]).rpartition("-")[0]
        # A sweep with more seeds has another hash behind the same label.
        alike = [r for r in others if label and str(r["name"]).rpartition("-")[0] == label]
        for earlier in (*(records if record in records else ()), *alike):
            added = any(seeds < now.get(id, set()) for id, seeds in seeds_asked(earlier).items())
            if added and str(earlier.get("created", "")) < str(record.get("created", "")):
                yield (
                    f"{SEEDS_ADDED} {earlier['name']}: if its table was looked at, "
                    "verdicts are wrong more often than the rule says."
                )
                break


def _ask_for_folders(asked: dict[str, _Asked], folders: Iterable[Path], row_of: RowOf) -> None:
    for folder in folders:
        row = row_of(folder)
        known = asked.setdefault(row.variant, _Asked(row.name, [])).seeds.setdefault(row.seed, [])
        if folder not in known:
            known.append(folder)


def _as_bundles(asked: dict[str, _Asked], records: Sequence[Record], swept: Sequence[str]) -> dict[str, _Asked]:
    """Return what a sweep over bundles of settings asks for, labelled by what the first one has not or has more."""
    if swept or not asked or len(records) != 1:
        return asked
    first = next(iter(asked.values())).overrides
    labels = dict[str, str]()
    for id, item in asked.items():
        own = [override for override in item.overrides if override not in first and key_of(override) != "seed"]
        less = [f"without {o}" for o in first if o not in item.overrides and key_of(o) != "seed"]
        labels[id] = " ".join(own or less)
    return {id: replace(item, label=labels[id]) for id, item in asked.items()}


def _variant(variant_id: str, item: _Asked, swept: tuple[str, ...], row_of: RowOf) -> Variant:
    rows = tuple(
        standing_row(folders, row_of) if folders else RunRow(variant_id, item.name, seed, WAITING, "not started")
        for seed, folders in item.seeds.items()
    )
    given = dict(override.lstrip("+~").partition("=")[::2] for override in item.overrides)
    label = item.label or item.name or variant_id
    return Variant(variant_id, label, rows, {key: given[key] for key in swept if key in given})


def _labelled(study: Study, wanted: str | None) -> Study:
    """Return the study with labels for its variants, a note about settings that move along, and its reference."""
    flats = {v.id: v.settings for v in study.variants if v.settings}
    complete = all(v.id in flats or v.rows[0].state == REFUSED for v in study.variants)
    study = replace(study, notes=(*study.notes, *_about_settled(flats, study.swept)))
    if study.kind in ABLATIONS:
        return _as_ablation(study, flats, wanted)
    if not study.swept and complete and len(flats) > 1:
        keys = differing_keys(list(flats.values()))
        if 0 < len(keys) <= MOST_KEYS_IN_A_LABEL:
            values = {id: {key: as_override(flat.get(key)) for key in keys} for id, flat in flats.items()}
            variants = tuple(replace(v, values=values.get(v.id, {})) for v in study.variants)
            study = replace(study, swept=tuple(keys), variants=variants)
    if study.swept and complete and all(key in flat for key in study.swept for flat in flats.values()):
        # A key that changes together with the swept one, such as one computed from it, shares its effect.
        besides = [key for key in differing_keys(list(flats.values())) if key not in study.swept]
        if 0 < len(besides) <= MOST_KEYS_IN_A_LABEL:
            verb = "move" if len(besides) > 1 else "moves"
            note = f"{', '.join(besides)} {verb} along: no difference belongs to {' or '.join(study.swept)} alone."
            study = replace(study, notes=(*study.notes, note))
    labels = {v.id: " ".join(f"{key}={value}" for key, value in v.values.items()) or v.label for v in study.variants}
    return _with_reference(replace(study, variants=_renamed(study.variants, labels)), wanted)


def _about_settled(flats: Mapping[str, Flat], swept: Sequence[str]) -> Iterable[str]:
    """Say in which settings variants differ that are one experiment but for what `auto` chose on each machine."""
    keys = [key for key in SETTLED_BY_THE_MACHINE if key not in swept]
    rest = [{key: value for key, value in flat.items() if key not in keys} for flat in flats.values()]
    experiments = grouped(zip((json.dumps(one, sort_keys=True) for one in rest), flats.values(), strict=True))
    for key in keys:
        values = sorted({as_override(flat.get(key)) for same in experiments.values() if len(same) > 1 for flat in same})
        if len(values) > 1:
            yield (
                f"One experiment is in several rows, with {key} {' and '.join(values)}: `auto` chooses by machine, and "
                f"results depend on it. Name it in the sweep, such as {key}={values[-1]}."
            )


def _as_ablation(study: Study, flats: Mapping[str, Flat], wanted: str | None) -> Study:
    """Return the study with labels that name what is missing or added, and the reasons of inseparable variants."""
    study = _with_reference(study, wanted)
    base = flats.get(study.reference.id) if study.reference else None
    if base is None or study.reference is None:
        return study
    labels, inseparable = {}, {}
    for variant in study.variants:
        if variant.id == study.reference.id or variant.id not in flats:
            labels[variant.id] = " ".join(f"{k}={v}" for k, v in variant.values.items()) or variant.label
            continue
        labels[variant.id] = str(change(base, flats[variant.id])) or variant.label
        # Two changes together are what such a sweep asks for.
        if study.kind != INTERACTION and (why := why_not_separable(base, flats[variant.id])):
            inseparable[variant.id] = why
    # Its own label would be an empty change.
    labels[study.reference.id] = study.reference.rows[0].name or study.reference.id
    reference_id = study.reference.id
    study = replace(study, variants=_renamed(study.variants, labels), inseparable=inseparable, swept=())
    tied = {name: required_by(name, techniques_of(base)) for name in sorted(techniques_of(base))}
    notes = [f"{name} is not separable: {' and '.join(by)} cannot be without it" for name, by in tied.items() if by]
    return _with_reference(replace(study, notes=(*study.notes, *notes)), reference_id)


def _with_reference(study: Study, wanted: str | None) -> Study:
    """Return the study with the reference that `wanted` names by id, label, name or value.

    An empty `wanted` stands for no reference, and None for the first variant, if there are two.
    """
    if not wanted:
        return replace(study, reference=study.variants[0] if wanted is None and len(study.variants) > 1 else None)
    matching: list[Variant] = []
    # An id or a label names one variant even if it is also the value of a setting of another.
    for names in (lambda v: [v.id], lambda v: [v.label], lambda v: [v.rows[0].name, *v.values.values()]):
        matching = matching or [v for v in study.variants if wanted in names(v)]
    if len(matching) > 1:
        matches = ", ".join(f"{v.label} ({v.id})" for v in matching)
        raise GolfError(f"The reference {wanted} fits {len(matching)} variants: {matches}. Name one by label or id.")
    if matching:
        return replace(study, reference=matching[0])
    labels = ", ".join(v.label for v in study.variants)
    raise GolfError(f"The reference {wanted} is not among the variants: {labels}. Name it among what to report, too.")


def _renamed(variants: Iterable[Variant], labels: Mapping[str, str]) -> tuple[Variant, ...]:
    """Return the variants with new labels; equal labels get the variant id behind them."""
    count = Counter(labels.values())
    named = {id: label if count[label] == 1 else f"{label} · {id}" for id, label in labels.items()}
    return tuple(replace(v, label=named[v.id]) for v in variants)
