"""Keep a candidate that beats the best so far; confirm the keeps.

    golf keep --base "scale=laptop" optim.beta2=0.99     # begins a campaign, tries a candidate at one seed
    golf keep optim.matrix_lr=0.03 model.num_layers=5    # another one, of several settings, on top of what was kept
    golf keep optim.beta1=0.8 --decided                  # in rounds of fresh seeds, until it is decided
    golf keep --confirm                                  # the keeps on fresh seeds, without one at a time: which stand
    golf keep                                            # everything that was tried

One seed each finds more than seeds spent on certainty, and half of its keeps do nothing. So it proves nothing.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.exits import EXIT_NOT_BETTER, EXIT_NOT_OK, EXIT_UNDECIDED, EXIT_USAGE
from golf.settings.bundles import bundle
from golf.words import answer, counted, interval_text, signed, told_on_stderr

if TYPE_CHECKING:
    from golf.lab.sweep.campaign import Campaign

ROUNDS, MOST_ROUNDS = 10, 100
STATUSES = {"keep": 0, "stands": 0, "discard": EXIT_NOT_BETTER, "falls": EXIT_NOT_BETTER, "failed": EXIT_NOT_OK}


def main(arguments: list[str]) -> int:
    """Try, confirm or list; the exit status is 0 for keep, 10 for discard, 11 for undecided, 1 for a failed run."""
    args = CommandParser("keep", __doc__).parse_intermixed_args(arguments)
    overrides = [override for word in args.overrides for override in bundle(word)]
    if overrides and args.confirm:
        raise GolfError("--confirm tries nothing: leave the overrides out, or leave --confirm out.")
    if args.decided and not overrides:
        raise GolfError("--decided tries a candidate: give its overrides, such as optim.beta2=0.99.")
    if not (args.decided or args.confirm) and (args.rounds, args.effect) != (None, None):
        raise GolfError("--rounds and --effect are of sweeps in rounds: add --decided or --confirm.")
    if args.rounds is not None and not 2 <= args.rounds <= MOST_ROUNDS:
        raise GolfError(f"--rounds {args.rounds} makes no sense here: give 2 to {MOST_ROUNDS}.")
    from golf.start import set_up

    set_up()
    with told_on_stderr() if args.json else nullcontext():
        campaign = _campaign(args)
        if not overrides and not args.confirm:
            told: dict[str, Any] | None = _listed(campaign)
        else:
            # Only here, because it imports torch.
            from golf.commands.keep_sweeps import confirmed, tried

            sweeps = {"rounds": args.rounds or ROUNDS, "effect": args.effect}
            told = confirmed(campaign, **sweeps) if args.confirm else tried(campaign, overrides, args.decided, **sweeps)
    if told is None:
        # A sentence has said why the sweep was refused.
        return EXIT_USAGE
    print(answer(told) if args.json else "\n".join(_sentences(told)))
    return STATUSES.get(told["decision"], EXIT_UNDECIDED) if "decision" in told else 0


def _campaign(args: Namespace) -> Campaign:
    """Return the campaign, which begins where `--base` is given first. Raises `GolfError` for another base."""
    from golf.lab.sweep.campaign import Campaign, check_base, locked, read_campaign, write_campaign
    from golf.run.identity import variant_id
    from golf.settings.composition import compose

    base = None if args.base is None else bundle(args.base)
    known = read_campaign(args.campaign)
    if known is None and base is None:
        raise GolfError(f'The campaign {args.campaign} has not begun: give its start, as in --base "scale=laptop".')
    if base is None or (known and known.base == base):
        assert known
        return known
    check_base(base)
    cfg = compose(base)
    if known is None:
        with locked(args.campaign):
            # Another process may have begun it meanwhile.
            if (known := read_campaign(args.campaign)) is None:
                known = Campaign(args.campaign, base, list(cfg.tech))
                write_campaign(known)
    if variant_id(compose(known.base)) != variant_id(cfg):
        raise GolfError(
            f"The campaign {known.name} began from {' '.join(known.base) or 'the default run'}: leave --base out, or "
            "begin another with --campaign NAME."
        )
    return known


def _listed(campaign: Campaign) -> dict[str, Any]:
    """Return start, incumbent, tries and confirmations of a campaign."""
    tries = [one.values for one in campaign.tries]
    incumbent = [*campaign.base, *campaign.together(campaign.chain)]
    told = {"campaign": campaign.name, "base": campaign.base, "incumbent": incumbent}
    return {**told, "tries": tries, "confirmations": campaign.confirmations}


def _sentences(told: dict[str, Any]) -> Iterable[str]:
    """Return the lines of an answer for people."""
    if "tries" in told:
        yield f"{told['campaign']}: {counted(len(told['tries']), 'try')}"
        for one in told["tries"]:
            yield f"  {one['decision']:9} {' '.join(one['overrides'])}: {_measured(one)}"
        yield f"incumbent: {' '.join(told['incumbent']) or 'the default run'}"
        return
    if "keeps" in told:
        for one in told["keeps"]:
            yield f"  {one['decision']:9} {' '.join(one['overrides'])}: {_measured(one)}"
        yield f"all keeps together: {_measured(told['together'])}"
    yield f"{told['decision']}: {_why(told)}"
    if told["decision"] == "keep" and not told["in_rounds"]:
        yield "One seed proves nothing: golf keep --confirm tells which keeps stand."
    if (place := told.get("season")) and place["of"] > 1:
        word, against = place["verdict"].replace("_", " "), "comparisons with this incumbent in all sweeps"
        yield f"over the season: {word} ({place['number']} of {place['of']} {against})"
    if isinstance(told.get("campaign"), dict):
        yield f"{told['campaign']['name']}: try {told['campaign']['tries']}, {told['campaign']['keeps']} kept so far"


def _why(told: dict[str, Any]) -> str:
    """Return what a decision rests on: a difference, how many keeps stand on fresh seeds, or why there is none."""
    if "keeps" not in told:
        return _measured(told) if "difference_bpb" in told else str(told["reason"])
    decisions = [one["decision"] for one in told["keeps"]]
    kinds = ", ".join(f"{decisions.count(kind)} {kind}" for kind in dict.fromkeys(decisions))
    left = " ".join(told["left"]) or "the default run"
    return f"{kinds}, of {counted(len(decisions), 'keep')} on {counted(told['seeds'], 'fresh seed')}; left: {left}"


def _measured(one: dict[str, Any]) -> str:
    """Return difference, interval and reason of a decision in words."""
    if one["difference_bpb"] is None:
        return str(one["reason"])
    low, high = one["interval_low_bpb"], one["interval_high_bpb"]
    within = f" ({interval_text((low, high))})" if low is not None else ""
    return f"{signed(one['difference_bpb'])} bpb{within}, {one['reason']}"
