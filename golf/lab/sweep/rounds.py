"""A sweep in rounds: one seed of every undecided variant a round, until all are decided (`sweep.until=decided`).

The plan is written to the sweep's record before the first run and never changes. Decisions follow from the plan and
the results alone, so the same command continues a killed sweep with the decisions that it had made.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from golf.errors import GolfError
from golf.lab.report.sequential import SequentialPlan, SequentialVerdicts, judge_sequentially
from golf.lab.report.study import read_study
from golf.lab.sweep.batch import run_batch
from golf.lab.sweep.jobs import Job, Key, Refused, made_by_other_code
from golf.lab.sweep.record import SweepRecord, read_record, sweep_kind
from golf.run.folder import finished_run
from golf.run.result import Result
from golf.run.sweeps import Row
from golf.words import counted

DECIDED = "decided"  # value of sweep.until


def run_until_decided(asked: Sequence[Job | Refused], *, name: str, rows: list[Row]) -> list[Result | None]:
    """Run rounds of the variants in `asked` for sweep `name`. Return each job's result, None where it has none.

    Raises `GolfError` if there is nothing to compare, or if an earlier start of the sweep had another plan.
    """
    variants, plan = planned(asked, name)
    refused = [job for job in asked if isinstance(job, Refused)]
    results: dict[Key, Result | None] = {}
    # As in any sweep, the same command makes crashed runs again, which no round does.
    record = read_record(name)
    before = (
        [(run["variant_id"], run["seed"]) for run in record.runs if run["variant_id"] in variants] if record else []
    )
    if crashed := [_with_seed(variants[id], seed) for id, seed in before if not finished_run(id, seed)]:
        _refuse_other_code(variants, plan)
        remade = run_batch(crashed, name=name, rows=rows, first_batch=False, plan=plan.values())
        results |= {job.key: result for job, result in zip(crashed, remade, strict=False)}
    done = decisions(name, variants, plan)
    if jobs := next_round(name, variants, plan, done):
        _refuse_other_code(variants, plan)
    if not jobs and before:
        # A sweep that has ended shows its table again, and runs nothing.
        shown = [_with_seed(variants[id], seed) for id, seed in before if finished_run(id, seed)]
        run_batch(shown, name=name, rows=rows, first_batch=False, plan=plan.values())
    while jobs:
        first = read_record(name) is None
        batch: list[Job | Refused] = [*jobs, *(refused if first else [])]
        batch_results = run_batch(batch, name=name, rows=rows, first_batch=first, plan=plan.values())
        results |= {job.key: result for job, result in zip(jobs, batch_results, strict=False)}
        earlier, done = done, decisions(name, variants, plan)
        # A round with a missing run is no look at the data. Going on would run the same round for ever.
        if done.looks == earlier.looks:
            print(f"Round {done.looks + 1} is not complete, so it decides nothing; the same command repeats it.")
            break
        print(shown_decisions(done, variants, plan), flush=True)
        jobs = next_round(name, variants, plan, done)
    return [results.get(job.key) if isinstance(job, Job) else None for job in asked]


def _refuse_other_code(variants: Iterable[str], plan: SequentialPlan) -> None:
    """Raise `GolfError` if runs that the rounds would take in are of other code: no verdict is made of two codes."""
    if sentences := made_by_other_code((id, seed) for id in variants for seed in plan.seeds):
        raise GolfError(
            f"Of these runs {sentences[0]}. Bring that code back, or give other seeds or another GOLF_RUNS."
        )


def planned(asked: Sequence[Job | Refused], name: str) -> tuple[dict[str, Job], SequentialPlan]:
    """Return a job of each variant by id, and the plan: that of the sweep's record, or a new one for its first start.

    The seeds of `asked` are those of the rounds; a single one is followed by 1, 2, ….
    """
    jobs = [job for job in asked if isinstance(job, Job)]
    variants: dict[str, Job] = {}
    for job in jobs:
        variants.setdefault(job.key[0], job)
    if len(variants) < 2:
        refused = "".join(f" {' '.join(job.overrides)}: {job.sentence}" for job in asked if isinstance(job, Refused))
        raise GolfError(f"sweep.until=decided compares variants: list two values of a setting or more.{refused}")
    first = jobs[0].cfg
    seeds = list(dict.fromkeys(job.cfg.seed for job in jobs))
    if len(seeds) == 1:
        others = (seed for seed in itertools.count(1) if seed != seeds[0])
        seeds += itertools.islice(others, first.sweep.max_seeds - 1)
    settings = first.sweep
    asks_worse = (settings.asks or ("worse" if sweep_kind(jobs) == "leave_one_out" else "better")) == "worse"
    plan = SequentialPlan(tuple(seeds), jobs[0].key[0], settings.effect_bpb, settings.max_runs, asks_worse=asks_worse)
    if (before := read_record(name)) is None:
        return variants, plan
    return variants, _kept(before, plan, fresh=first.launch.fresh)


def decisions(name: str, variants: Mapping[str, Job], plan: SequentialPlan) -> SequentialVerdicts:
    """Return what the finished rounds of sweep `name` decide; before its first run all variants go on."""
    if read_record(name) is None:
        return SequentialVerdicts(active=[id for id in variants if id != plan.reference])
    study = read_study([name])
    assert study.reference is not None, "a sweep in rounds has a reference"
    return judge_sequentially(study.variants, study.reference, variants[plan.reference].cfg.rules, plan)


def next_round(name: str, variants: Mapping[str, Job], plan: SequentialPlan, done: SequentialVerdicts) -> list[Job]:
    """Return the jobs of the next round: the reference and all undecided variants; none if the sweep has ended."""
    if not done.active or done.looks == plan.looks:
        return []
    seed = plan.seeds[done.looks]
    jobs = [_with_seed(variants[id], seed) for id in (plan.reference, *done.active) if id in variants]
    record = read_record(name)
    # A round that is repeated adds no runs, so its own are not counted twice.
    asked = {(run["variant_id"], run["seed"]) for run in record.runs} if record else set()
    if plan.most_runs is not None and len(asked | {job.key for job in jobs}) > plan.most_runs:
        print(f"sweep.max_runs={plan.most_runs} admits no further round of {counted(len(jobs), 'run')}.", flush=True)
        return []
    return jobs


def _with_seed(job: Job, seed: int) -> Job:
    """Return the job with another seed."""
    overrides = (*(o for o in job.overrides if not o.startswith("seed=")), f"seed={seed}")
    return Job.of(overrides, dataclasses.replace(job.cfg, seed=seed), job.remarks)


def _kept(record: SweepRecord, plan: SequentialPlan, *, fresh: bool) -> SequentialPlan:
    """Return the plan of `record`. Raises `GolfError` if `plan` is another: looks that were taken cannot be undone."""
    if fresh:
        raise GolfError(
            f"launch.fresh=true would repeat runs of {record.name} that were looked at, and a look cannot be undone: "
            "give other seeds, so that it becomes a sweep of its own."
        )
    if (kept := SequentialPlan.of(record.sequential)) is None:
        raise GolfError(
            f"The sweep {record.name} was run without sweep.until=decided: its runs were looked at already. "
            "Give other seeds, so that it becomes a sweep of its own."
        )
    if kept.moderated:
        raise GolfError(
            f"The sweep {record.name} began under sweep.test=moderated, which golf no longer has: golf report "
            f"{record.name} shows its runs, and other seeds make a sweep of its own."
        )
    # Sweeps that began before there was a choice asked what is better.
    if kept != plan and (record.sequential or {}).get("asks_worse") is None:
        plan = dataclasses.replace(plan, asks_worse=False)
    if kept != plan:
        raise GolfError(
            f"The sweep {record.name} began with {len(kept.seeds)} rounds (seeds {', '.join(map(str, kept.seeds))}), "
            f"sweep.effect_bpb={kept.effect_bpb} and sweep.max_runs={kept.most_runs}. "
            "A plan cannot change after a look: give the same settings again."
        )
    return kept


def shown_decisions(done: SequentialVerdicts, variants: Mapping[str, Job], plan: SequentialPlan) -> str:
    """Return a line on the rounds so far: how many variants are decided and how many go on."""
    decided = len(variants) - 1 - len(done.active)
    after = f"after round {done.looks} of at most {plan.looks}: {decided} decided, {len(done.active)} go on"
    return after if done.active else f"{after}; the sweep has ended"
