"""Cancel the waiting and running jobs of a submitted sweep.

Finished runs keep their results. What runs on rented machines have until then comes home.
"""

from __future__ import annotations

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.words import answer, counted


def main(arguments: list[str]) -> int:
    """Cancel the jobs and print how many there were."""
    args = CommandParser("cancel", __doc__).parse_intermixed_args(arguments)
    from golf.lab.cluster.batch import FOLLOWER, is_rented
    from golf.lab.cluster.bring import cancel_batches
    from golf.lab.cluster.queue import cancel, job_states
    from golf.lab.cluster.status import find_record
    from golf.lab.cluster.submit import read_submitted
    from golf.lab.cluster.waves import waves_sent
    from golf.run.sweeps import sweep_folder

    record = find_record(args.sweep)
    sent = [job for _, job in read_submitted(sweep_folder(record.name) / "submitted.jsonl")]
    if not (sent or waves_sent(record.name)):
        raise GolfError(f"The sweep {record.name} was never submitted: Ctrl-C where it runs ends it.")
    # The job that sends the next round goes first: it would start as soon as the others have ended.
    cancel([wave.job for wave in waves_sent(record.name) if wave.job != FOLLOWER])
    left = [job for job, state in job_states(sent).items() if state.is_open]
    cancel(job for job in left if not is_rented(job))
    if any(map(is_rented, left)):
        cancel_batches(record.name)
    if args.json:
        print(answer({"sweep": record.name, "cancelled": len(left), "jobs": len(sent)}))
        return 0
    print(f"cancelled: {len(left)} of {counted(len(sent), 'job')}, as many as were waiting or running")
    return 0
