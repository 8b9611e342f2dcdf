"""Remarks on findings: the sentences below a table of results, on how far its verdicts can be trusted."""

from __future__ import annotations

from collections.abc import Iterable

from golf.lab.report.expectation import about_expectations
from golf.lab.report.findings import Findings
from golf.lab.report.interaction import about_interactions
from golf.lab.report.losses import counts_losses
from golf.lab.report.machines import MACHINE, SEED
from golf.lab.report.optimum import about_optimum
from golf.lab.report.origin import about_origins
from golf.lab.report.power import about_power, comparison_of, noise_among
from golf.lab.report.rows import EDITED, IMPORTED, STARVED
from golf.lab.report.statistics import KNOWN_SIGMA, ONE_SEED, luck_of_the_best
from golf.lab.report.study import SEEDS_ADDED, Study
from golf.lab.report.underway import about_underway
from golf.lab.report.variants import Variant, compared_before
from golf.run.code import EARLIER, THEN
from golf.words import counted, listed, significant

OF_DIFFERENCES = (about_origins, about_interactions, about_optimum, about_underway, about_expectations)
MOST_NAMES = 4  # machines that a remark names
MANY = 3  # number of variants that may be equal, from which on a remark says that chance flatters the best


def remarks_on(findings: Findings) -> tuple[str, ...]:
    """Return the sentences below the table, those of the study last."""
    study = findings.study
    topics = (_about_score, _about_text, _about_rule, *OF_DIFFERENCES, _about_looks, _about_noise, _about_trust)
    remarks = [remark for about in topics for remark in about(findings)]
    return (*remarks, *_about_runs(study), *study.notes, *(study.about_chosen if findings.verdicts else ()))


def _about_score(findings: Findings) -> Iterable[str]:
    ways = {way for v in findings.study.variants for way in v.known("how")}
    if findings.score == "final" and len(ways) == 1 and ways != {"standard"}:
        yield f"Scores are the artifact's: {ways.pop()}."
    if len(ways) > 1 and findings.score == "post_quant":
        yield f"The runs' own scores were taken in {len(ways)} ways: compared is the standard one after quantization."


def _about_text(findings: Findings) -> Iterable[str]:
    """Say on which text imported runs were scored, where all agree, and that it is not known where no run tells it."""
    rows = [row for v in findings.study.variants for row in v.counted]
    texts = {row.data for row in rows}
    if texts == {None} and any(v.comparison for v in findings.verdicts.values()):
        yield "No run tells which text it was scored on: the verdicts take it to be the same."
    if len(texts) == 1 and None not in texts and any(row.source == IMPORTED for row in rows):
        yield f"Scored on: {texts.pop()}."


def _about_rule(findings: Findings) -> Iterable[str]:
    rules, verdicts = findings.rules, findings.verdicts.values()
    if not verdicts:
        return
    tests = sorted({v.comparison.test for v in verdicts if v.comparison})
    by = f" by more than {rules.margin_nats:g} nats per token" if rules.margin_nats else ""
    count = max(v.family for v in verdicts)
    before = len(compared_before(findings.study.variants)) if count else 0
    to_come = count - before - sum(v.comparison is not None for v in verdicts)
    if findings.looks is not None:
        to_come = sum(findings.verdicts[id].comparison is None for id in findings.active)
    later = f", {to_come} of them to come" if to_come else ""
    later += f", {before} of an earlier sweep" if before else ""
    # The looks of a sequential sweep share the level out themselves.
    how_corrected = "Holm-corrected" if findings.looks is None else "corrected"
    over = f", {how_corrected} over {count} comparisons{later}" if count > 1 else ""
    how = f" ({', '.join(tests)} test{over})" if tests else ""
    yield (
        f"Verdicts by rules={rules.name} against {findings.reference_name}: better{by} or worse "
        f"at one-sided p < {rules.alpha:g}{how}."
    )
    if tests and count > 1 and findings.looks is None:
        yield "p is corrected and the intervals are not: each interval holds for its own row, were it the only one."


def _about_looks(findings: Findings) -> Iterable[str]:
    """Say how often a sweep in rounds was looked at, or that its looks are not counted."""
    plan, stopped = findings.study.plan, findings.study.stopped
    if plan is None or findings.looks is None:
        if stopped and findings.verdicts:
            yield (
                f"Runs of {listed(stopped)} end when they are decided, and this table counts one look only: its "
                "verdicts are wrong more often than the rule says."
            )
        return
    is_chosen = any(v.rivals for v in findings.study.variants)
    holds = "p holds, unlike the intervals of chosen variants," if is_chosen else "intervals and p hold"
    # Looks at the earlier sweep are none of the plan's.
    is_added = any(note.startswith(SEEDS_ADDED) for note in findings.study.notes)
    yield (
        f"Sequential: {findings.looks} of at most {plan.looks} looks. The error of the rule is shared out over all of "
        f"them{'.' if is_added else f', and {holds} whenever the sweep stopped.'}"
    )
    if any(v.comparison for v in findings.verdicts.values()):
        yield "A difference is that of its variant's last look; means, sd and n are of all runs."
    if plan.moderated:
        yield "The sweep began under sweep.test=moderated, which golf no longer has: these verdicts are Welch's test."


def _about_noise(findings: Findings) -> Iterable[str]:
    verdicts = findings.verdicts.values()
    if findings.sigma and any(v.comparison and v.comparison.test == KNOWN_SIGMA for v in verdicts):
        yield f"Where seeds are too few, the standard deviation is the given {findings.sigma:g} bpb."
    judged = [(v, c) for v in findings.study.variants if (c := comparison_of(findings, v))]
    of_reference = [findings.reference] if isinstance(findings.reference, Variant) else []
    if any(counts_losses(c, side) for v, c in judged for side in (v, *of_reference)):
        yield "p counts lost runs as the worst, by an exact test of ranks; means and intervals are of the rest."
    tests = " ".join(c.test for _, c in judged)
    if MACHINE in tests:
        yield "A difference with terms for machines is that of the fit; sd and the means contain the machines."
    if SEED in tests:
        share = max(getattr(c, "shared", 0.0) for _, c in judged)
        yield f"Runs of one seed move together (r = {share:.2f}): a term for each takes that out of Δ, interval and p."
    if any(v.comparison is None and v.reason == ONE_SEED for v in verdicts):
        yield "One seed has no standard deviation: run more (seed=1,2,3), or borrow one with --sigma."
    yield from about_power(findings)


def _about_trust(findings: Findings) -> Iterable[str]:
    """Name what makes the numbers look surer or better than they are."""
    tests = {v.comparison.test for v in findings.verdicts.values() if v.comparison}
    if isinstance(findings.reference, float) and tests:
        if findings.published:
            yield f"{findings.reference:g} is taken as {findings.published}."
        else:
            yield (
                f"{findings.reference:g} is taken as exact: it has noise of its own, so verdicts come too easily. "
                "--against-n and --against-sigma say how much."
            )
    if findings.sigma and tests and KNOWN_SIGMA not in tests:
        yield f"The given {findings.sigma:g} bpb is not used: all that is tested has a standard deviation of its own."
    best, equal = findings.best, [v for v in findings.study.variants if v.id in findings.ranking.unbeaten]
    if best and len(equal) >= MANY:
        luck = luck_of_the_best(len(equal), noise_among(findings, equal), len(best.scores(findings.score)))
        by = f" by {significant(luck)} bpb on average" if luck else ""
        yield (
            f"{len(equal)} variants may be equal, as none was shown to be worse than the best: if they are, chance "
            f"flatters the best{by}. Only fresh seeds tell how good it is."
        )


def _about_runs(study: Study) -> Iterable[str]:
    rows = [row for v in study.variants for row in v.rows]
    machines = sorted({row.machine for row in rows if row.counts and row.machine})
    if len(machines) > 1:
        yield (
            f"The runs are from {len(machines)} kinds of machine ({'; '.join(machines[:MOST_NAMES])}): "
            "under a clock, a difference may be the machine's."
        )
    yield from _about_code(study)
    for variant in study.variants:
        for copy, original in variant.copies:
            yield f"{variant.label}: seed {copy.seed} scored as seed {original.seed} to the last digit: it is a copy."
        if None in variant.texts and len(variant.texts) > 1:
            yield f"{variant.label}: not all of its seeds tell which text they were scored on: they are not averaged."
        elif len(variant.texts) > 1:
            yield f"{variant.label}: its seeds were scored on several texts and are not averaged."
    if any(v.is_open for v in study.variants):
        count = sum(row.is_to_come for row in rows)
        yield f"{count} of {counted(len(rows), 'run')} not finished yet: verdicts may change."
    if starved := sum(row.state == STARVED for row in rows):
        yield (
            f"{counted(starved, 'run')} had too few of the machine's cores for the clock, and count in no mean: a "
            "command for one seed alone repeats it once the machine is free."
        )
    for row in rows:
        for fault in row.faults:
            yield f"{row.name}{'' if row.seed is None else f', seed {row.seed}'}: {fault}"


def _about_code(study: Study) -> Iterable[str]:
    """Say which versions of the code ran, if several did or if edits may hide several."""
    digests = {row.code_digest or EARLIER for v in study.variants for row in v.counted}
    if len(digests) == 1 and not any(EARLIER in digest or THEN in digest for digest in digests):
        # Their commits may differ, or have edits, in files that no run executes.
        return
    codes = sorted({code for v in study.variants for code in v.known("code")})
    mixed = listed([v.label for v in study.variants if len(v.known("code")) > 1], MOST_NAMES)
    also = f", mixed within {mixed}" if mixed else ""
    if len(codes) > 1 or EDITED in "".join(codes):
        yield f"The code that ran is {listed(codes, MOST_NAMES)}{also}: a difference may be the code's."
