"""The sweeps of `golf keep`: a candidate against the incumbent, and the keeps without one at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from golf import train
from golf.errors import GolfError
from golf.exits import EXIT_USAGE
from golf.lab.report.difference import differences
from golf.lab.report.findings import Findings, judged
from golf.lab.report.keeping import FALLS, KEEP, REPLACED, UNDECIDED, Decision, decide, standing, worst
from golf.lab.report.season import discoveries, p_alone, places_of
from golf.lab.report.study import read_study
from golf.lab.sweep.campaign import (
    SEED_OF_SEARCH,
    Campaign,
    Try,
    check_candidate,
    locked,
    read_campaign,
    write_campaign,
)
from golf.run.identity import variant_id
from golf.run.result import CRASHED, STOPPED
from golf.settings.bundles import as_setting, on_top
from golf.settings.composition import completed, compose, rules_selected

FAILED = "failed"  # a run crashed, was interrupted or stopped, so that nothing is decided


class _FailedError(Exception):
    """Runs of a sweep did not end."""


def tried(
    campaign: Campaign, overrides: list[str], in_rounds: bool, *, rounds: int, effect: float | None
) -> dict[str, Any] | None:
    """Return what was found of a candidate, and record it; None if its sweep was refused."""
    check_candidate(overrides)
    begun = time.time()
    while True:
        sides = [campaign.together(chain) for chain in (campaign.chain, [*campaign.chain, overrides])]
        one, other = (compose(on_top(campaign.base, side)) for side in sides)
        ids = variant_id(one), variant_id(other)
        if known := campaign.known(ids[1], in_rounds):
            return {**known.values, "runs": 0, "seconds": 0.0, "campaign": _counts(campaign, known)}
        if ids[0] == ids[1]:
            raise GolfError(f"{' '.join(overrides)} changes nothing: the incumbent is that, variant {ids[0]}.")
        seeds = campaign.seeds(rounds) if in_rounds else [SEED_OF_SEARCH]
        try:
            findings = _swept(campaign, sides, seeds, _of_rounds("better", effect) if in_rounds else [])
        except _FailedError as error:
            return {"decision": FAILED, "reason": str(error), "overrides": overrides}
        if findings is None:
            return None
        done, variant = decide(findings, ids[1]), next(v for v in findings.study.variants if v.id == ids[1])
        values: dict[str, Any] = {"overrides": overrides, "incumbent": ids[0], "candidate": ids[1]}
        values |= {"differs": {d.key: (d.one, d.other) for d in differences(one, other)[0]}, **asdict(done)}
        values |= {"seeds": len(variant.rows), "in_rounds": in_rounds, "sweep": findings.study.title}
        place = places_of(findings).get(variant.id)
        values |= {"season": place.values if place else None}
        p = p_alone(findings, variant) if in_rounds else None
        new = Try(overrides, done.decision, ids[0], ids[1], in_rounds, p, values)
        with locked(campaign.name):
            campaign, before = read_campaign(campaign.name) or campaign, campaign
            # Another process may have kept something meanwhile: what beats the old incumbent has to beat the new one.
            if done.decision != KEEP or campaign.chain == before.chain:
                if not campaign.known(ids[1], in_rounds):
                    campaign.tries.append(new)
                    write_campaign(campaign)
                return {**values, **_spent(findings, begun), "campaign": _counts(campaign, new)}


def confirmed(campaign: Campaign, *, rounds: int, effect: float | None) -> dict[str, Any] | None:
    """Return which keeps stand on seeds that no choice was made by, and record it; None if the sweep was refused."""
    if not (chain := campaign.chain):
        raise GolfError(f"Nothing was kept in the campaign {campaign.name} yet: there is nothing to confirm.")
    begun = time.time()
    if known := campaign.confirmation:
        print("These keeps were confirmed before, and are not looked at again: what follows is what was found then.")
        return {**known, "runs": 0, "seconds": 0.0}
    arms = _without_each(campaign)
    bundles = {id: said for id, said in arms if isinstance(said, list)}
    try:
        findings = _swept(campaign, [*bundles.values()], campaign.fresh_seeds(rounds), _of_rounds("worse", effect))
    except _FailedError as error:
        return {"decision": FAILED, "reason": str(error)}
    if findings is None:
        return None
    *found, together = [standing(findings, id) if isinstance(said, list) else said for id, said in arms[1:]]
    left = [overrides for overrides, one in zip(chain, found, strict=True) if one.decision != FALLS]
    told = {
        "decision": worst(found),
        "keeps": [{"overrides": overrides, **asdict(one)} for overrides, one in zip(chain, found, strict=True)],
        "together": asdict(together),
        "left": on_top(campaign.base, campaign.together(left)),
        "seeds": findings.looks,
        "sweep": findings.study.title,
    }
    with locked(campaign.name):
        campaign = read_campaign(campaign.name) or campaign
        if not campaign.confirmation:
            campaign.confirmations.append(told)
            write_campaign(campaign)
    return {**told, **_spent(findings, begun)}


def _without_each(campaign: Campaign) -> list[tuple[str, list[str] | Decision]]:
    """Return id and overrides of the whole chain, of the chain without each keep, and of the start.

    In place of overrides stands a decision where a keep cannot be left out.
    """
    chain = campaign.chain
    chains = [chain, *([*chain[:at], *chain[at + 1 :]] for at in range(len(chain))), []]
    arms: list[tuple[str, list[str] | Decision]] = []
    for bundles in chains:
        overrides = campaign.together(bundles)
        try:
            id = variant_id(compose(on_top(campaign.base, overrides)))
        except GolfError as error:
            # Such as a technique that another one needs.
            arms.append(("", Decision(UNDECIDED, f"cannot be left out alone: {error}")))
            continue
        is_whole = bool(arms) and id == arms[0][0]
        arms.append((id, Decision(REPLACED, "later keeps have taken its place") if is_whole else overrides))
    return arms


def _of_rounds(asks: str, effect: float | None) -> list[str]:
    worth = [f"sweep.effect_bpb={effect:g}"] if effect else []
    return ["sweep.until=decided", f"sweep.asks={asks}", *worth]


def _swept(
    campaign: Campaign, bundles: Sequence[list[str]], seeds: Sequence[int], settings: list[str]
) -> Findings | None:
    """Return the findings of a sweep of bundles on the campaign's start; None if it was refused in a sentence.

    Raises `_FailedError` for a sweep with a run that crashed or did not end.
    """
    overrides = [*campaign.base, f"seed={','.join(map(str, seeds))}", *settings, as_setting(bundles)]
    # The command that makes this sweep alone, which its record keeps.
    if train.command_line(["golf train", "-m", *overrides]) == EXIT_USAGE:
        return None
    findings = judged(read_study([train.name_of(completed(overrides))]), rules_selected(campaign.base))
    rows = [row for variant in findings.study.variants for row in variant.rows]
    if bad := next((row for row in rows if row.is_to_come or row.state in (CRASHED, STOPPED)), None):
        raise _FailedError(f"seed {bad.seed} of variant {bad.variant} is {bad.state}: {bad.reason}")
    return findings


def _spent(findings: Findings, begun: float) -> dict[str, Any]:
    """Return the runs that ended since `begun`, and the seconds."""
    paths = [row.path / "result.json" for v in findings.study.variants for row in v.rows if row.path]
    return {"runs": sum(path.stat().st_mtime >= begun for path in paths), "seconds": time.time() - begun}


def _counts(campaign: Campaign, one: Try) -> dict[str, Any]:
    """Return tries and keeps so far; of a try in rounds also whether it is better over all of these (LORD++)."""
    in_rounds = [t for t in campaign.tries if t.p_alone is not None]
    found = discoveries([t.p_alone or 0.0 for t in in_rounds], rules_selected(campaign.base).alpha)
    better = next((is_found for t, is_found in zip(in_rounds, found, strict=True) if t == one), None)
    counts = {"tries": len(campaign.tries), "keeps": len(campaign.keeps)}
    return {"name": campaign.name, **counts, "better_over_all_tries": better}
