"""A sweep in rounds on Slurm: each round is a job array, and a small job that waits for it sends the next one.

No process stays on the login node. Decisions follow from the sweep's record and the results alone, so whoever computes
them finds the same ones: the waiting job, or the same command given again after that job has died.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from golf.errors import GolfError
from golf.files import append_lines, read_json, read_lines, write_json
from golf.lab.cluster.batch import FOLLOWER, follower_lock, waves_file
from golf.lab.cluster.queue import job_states
from golf.lab.cluster.show import show_order, show_sent
from golf.lab.cluster.snapshot import take_snapshot
from golf.lab.cluster.submit import (
    ClusterOrder,
    executor,
    lock_submitting,
    make_order,
    queued_runs,
    submit,
)
from golf.lab.report.sequential import SequentialPlan, SequentialVerdicts
from golf.lab.sweep.jobs import Job, Refused, dealt
from golf.lab.sweep.record import extended, make_record, read_record, write_record
from golf.lab.sweep.rounds import decisions, next_round, planned, shown_decisions
from golf.run.locks import is_locked
from golf.run.sweeps import sweep_folder
from golf.settings.config import Config, from_dict, to_dict

CONTROLLER_MINUTES = 30
# Fields of sbatch that say where a job may run. The rest, such as GPUs and exclusive nodes, are for training.
PLACE_KEYS = ("partition", "account", "qos", "reservation", "wckey")


@dataclass(frozen=True)
class Wave:
    """A round that was sent, as a line of the sweep's `waves.jsonl`."""

    look: int  # number of the round, from 1
    job: str  # id of the Slurm job that sends the next round


@dataclass(frozen=True)
class Waves:
    """A sweep in rounds: its variants by id, with any seed, and the command that began it."""

    name: str
    command: list[str]
    plan: SequentialPlan
    variants: Mapping[str, Job]
    refused: Sequence[Refused] = ()


def start_waves(asked: Sequence[Job | Refused], name: str, command: Sequence[str], *, dry_run: bool) -> None:
    """Send the next round of sweep `name` unless a job that does it is waiting. With `dry_run` only print it.

    Raises `GolfError` if there is nothing to compare, if an earlier start had another plan, or without a Slurm.
    """
    variants, plan = planned(asked, name)
    if any(job.cfg.cluster.executor == "local" for job in variants.values()):
        raise GolfError("sweep.until=decided needs Slurm or cluster=ssh: use golf train for it on this machine.")
    waves = Waves(name, list(command), plan, variants, [job for job in asked if isinstance(job, Refused)])
    if dry_run:
        done = decisions(name, variants, plan)
        show_order(make_order([*next_round(name, variants, plan, done), *waves.refused]), name)
        print(shown_decisions(done, variants, plan))
        return
    if waiting := waiting_controller(name):
        print(f"sweep {name}: round {waiting.look} is at work, and job {waiting.job} sends the next one")
        return
    told = ((list(job.overrides), to_dict(job.cfg), list(job.remarks)) for job in variants.values())
    jobs = [dict(zip(("overrides", "config", "remarks"), job, strict=True)) for job in told]
    write_json(_file(name), {"command": waves.command, "variants": jobs})
    send_wave(waves)


def send_wave(waves: Waves) -> None:
    """Send the next round and the job that waits for it; print what was decided before.

    A round whose runs have all finished elsewhere is decided at once.
    """
    name, variants, plan = waves.name, waves.variants, waves.plan
    done = decisions(name, variants, plan)
    while jobs := next_round(name, variants, plan, done):
        before = read_record(name)
        # Refused jobs are reported and recorded once.
        order = make_order([*dealt(jobs, plan.seeds), *(waves.refused if before is None else ())])
        made = replace(make_record(name, waves.command, order.jobs, order.refused, before), sequential=plan.values())
        write_record(made if before is None else extended(before, made))
        if order.to_run or order.running:
            show_order(order, name)
            if order.to_run:
                show_sent(submit(order, name), name)
            _send_controller(order, done.looks + 1, name)
            return
        earlier, done = done, decisions(name, variants, plan)
        if done.looks == earlier.looks:
            raise GolfError(incomplete(done.looks + 1))
    print(shown_decisions(done, variants, plan))


def run_controller(name: str, look: int) -> str:
    """Send the round after round `look` of sweep `name`, as a job of Slurm. Return what it did, for Slurm's log.

    Raises `GolfError` if a run of round `look` has no result: sending it again and again might never end.
    """
    with lock_submitting():
        waves = read_waves(name)
        done = decisions(name, waves.variants, waves.plan)
        # If a controller died before it was written down and a second one was sent, only the first goes on.
        if (waiting := waiting_controller(name)) and waiting.look > look:
            return f"job {waiting.job} goes on with the sweep"
        if done.looks < look:
            raise GolfError(incomplete(look))
        send_wave(waves)
    return shown_decisions(done, waves.variants, waves.plan)


def incomplete(look: int) -> str:
    """Return the sentence about a round with a run that has no result."""
    return f"Round {look} is not complete, so it decides nothing; the same command sends its missing runs again."


def read_waves(name: str) -> Waves:
    """Return the sweep that `start_waves` wrote down. Raises `GolfError` if it did not."""
    record = read_record(name)
    plan = SequentialPlan.of(record.sequential) if record else None
    try:
        values = read_json(_file(name))
    except (OSError, ValueError) as error:
        raise GolfError(f"{_file(name)} does not tell the variants of the sweep ({error}).") from error
    if plan is None:
        raise GolfError(f"The sweep {name} has no plan of rounds.")
    jobs = [Job.of(v["overrides"], from_dict(Config, v["config"]), v["remarks"]) for v in values["variants"]]
    return Waves(name, values["command"], plan, {job.key[0]: job for job in jobs})


def waves_sent(name: str) -> list[Wave]:
    """Return the rounds that were sent to Slurm, the oldest first; none for a sweep of a fixed size."""
    return [Wave(**values) for values in read_lines(waves_file(name))]


def waiting_controller(name: str) -> Wave | None:
    """Return the latest round whose waiting job is queued or runs; None if no job will go on with the sweep.

    Of rented machines the follower is the waiting job.
    """
    sent = {wave.job: wave for wave in waves_sent(name) if wave.job != os.environ.get("SLURM_JOB_ID")}
    alive = [sent[job] for job, state in job_states(sent).items() if state.is_open]
    if FOLLOWER in sent and is_locked(follower_lock(name)):
        alive.append(sent[FOLLOWER])
    return max(alive, key=lambda wave: wave.look, default=None)


def about_waves(name: str) -> str:
    """Return a sentence on how the rounds of a sweep go on; empty for a sweep that has none."""
    if not waves_sent(name):
        return ""
    waves = read_waves(name)
    done: SequentialVerdicts = decisions(name, waves.variants, waves.plan)
    said = shown_decisions(done, waves.variants, waves.plan)
    if not done.active or done.looks == waves.plan.looks:
        return said
    try:
        waiting = waiting_controller(name)
    except GolfError as error:
        return f"{said}; {error}"
    after = f"job {waiting.job} sends the next" if waiting else "no job goes on with it: give the same command again"
    if waiting and waiting.job == FOLLOWER:
        after = "the follower here sends the next"
    return f"{said}; {after}"


def _send_controller(order: ClusterOrder, look: int, name: str) -> None:
    """Send the job that waits until all jobs of the round have ended, however they ended."""
    if order.jobs[0].cfg.cluster.executor == "ssh":
        append_lines(waves_file(name), [{"look": look, "job": FOLLOWER}])
        print(f"round {look}; the follower on this machine decides after it and sends the next one")
        return
    queued, wanted = queued_runs(), {job.key for job in order.jobs}
    if not (ids := sorted(job for key, job in queued.items() if key in wanted)):
        raise GolfError(f"The runs of round {look} work outside of Slurm: give the same command once they have ended.")
    folder = sweep_folder(name)
    snapshot = take_snapshot(folder / "snapshots")
    sender = executor(_controller_like(order.jobs[0]), folder / "slurm", snapshot, f"{name}-rounds")
    sender.update_parameters(slurm_dependency=f"afterany:{':'.join(ids)}")
    try:
        job = sender.submit(run_controller, name, look)
    except Exception as error:
        # submitit passes on whatever sbatch said, in exceptions of many classes.
        raise GolfError(f"The job after round {look} could not be submitted: {' '.join(str(error).split())}") from error
    append_lines(waves_file(name), [{"look": look, "job": job.job_id}])
    print(f"round {look}; job {job.job_id} decides after it and sends the next one")


def _controller_like(job: Job) -> Job:
    """Return `job` on one core without a GPU, at the same place of the cluster."""
    cluster = job.cfg.cluster
    sbatch = {key: value for key, value in cluster.sbatch.items() if key in PLACE_KEYS}
    cluster = replace(cluster, gpus=0, cpus_per_rank=1, minutes=CONTROLLER_MINUTES, sbatch=sbatch)
    return replace(job, cfg=replace(job.cfg, cluster=cluster, launch=replace(job.cfg.launch, nodes=1, nproc=1)))


def _file(name: str) -> Path:
    return sweep_folder(name) / "waves.json"
