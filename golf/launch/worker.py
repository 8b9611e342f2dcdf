"""One rank in this process: read the run folder's config.json, train, and leave a result there whatever happens.

`python -m golf.launch.worker <run folder> [bytes of code]` is a rank under torchrun. It knows no Hydra.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path

from golf.errors import GolfError
from golf.files import DAMAGED
from golf.idea_folders import place_of, refuse_changed
from golf.launch.process import Interrupted, interruptible
from golf.run.code import THEN, code_of_run, note_edits, own_code
from golf.run.environment import host_name, machine_kind
from golf.run.folder import NOT_SCORED, RunFolder
from golf.run.identity import variant_id
from golf.run.result import CRASHED, FINAL, INTERRUPTED, STOPPED, Result
from golf.settings.config import Config, world_size
from golf.system import cpu_cores, die_with_parent, tune_allocator
from golf.words import outlive_readers

UNCOMPILED = (
    "compiling failed, see error.txt: TORCHINDUCTOR_CACHE_DIR=… names another folder if its cache is damaged, full or "
    "read-only, and launch.compile=off trains without"
)


def run_in_process(folder: RunFolder, code_bytes: int | None = None) -> Result:
    """Run this rank and return its result. Rank 0 writes the result. `code_bytes` are those of the script, if known.

    A failure raises nothing: it is a result with the state `crashed`, `interrupted` or `stopped`.
    """
    cfg, start_id = folder.read_config(), folder.start_id()
    # The allocator is set before torch is imported, because its settings hold only for memory allocated after them.
    if cfg.launch.device == "cpu":
        tune_allocator()
    import torch

    from golf.training.loop.rank import run_rank
    from golf.training.ranks import join_ranks, leave_ranks
    from golf.training.services import SERVICES

    loaded = set(sys.modules) if own_code() == code_of_run(folder.path).split(THEN)[-1] else set()
    torch.set_num_threads(cfg.launch.threads or max(1, cpu_cores() // cfg.launch.nproc))
    is_first = True
    try:
        refuse_changed(cfg.idea_code)
        with interruptible():
            ranks = join_ranks(cfg.launch.device, world_size(cfg))
            is_first = ranks.is_first
            result = run_rank(cfg, folder, ranks, SERVICES, code_bytes)
            leave_ranks()
    except (Exception, Interrupted) as error:
        # The files belong to a later start if this rank has survived its launcher.
        if start_id != folder.start_id():
            raise
        result = failed(cfg, folder, error)
    if is_first:
        with contextlib.suppress(*DAMAGED):
            note_edits(folder.path, loaded)
        result.host = host_name()
        # Slurm counts the starts before this one.
        result.attempt = 1 + int(os.environ.get("SLURM_RESTART_COUNT", 0))
        if folder.write_result(result, start_id):
            if result.state in FINAL:
                folder.trained.unlink(missing_ok=True)
            from golf.run.curves import draw_curves

            # After result.json was written neither a full disk nor a missing package makes the run a failed one.
            try:
                draw_curves(folder, result)
            except (GolfError, OSError, ImportError) as error:
                print(f"note: {folder.curves.name} is left out ({error})", file=sys.stderr)
    return result


def failed(cfg: Config, folder: RunFolder, error: BaseException) -> Result:
    """Return the result of a run that `error` ended. The first failure of any rank is written to error.txt."""
    result = Result(name=cfg.name, variant_id=variant_id(cfg), seed=cfg.seed, scale=cfg.scale.name)
    result.data_name = cfg.data.name
    _record_reached(result, cfg, folder)
    if folder.stop.exists():
        result.state, result.reason = STOPPED, f"by golf stop{_how_far(folder)}"
        return result
    # When one rank crashes, torchrun stops the others with a signal: the crash is the reason, not the signal.
    if isinstance(error, Interrupted) and not folder.error.exists():
        result.state, result.reason = INTERRUPTED, f"{error}{_how_far(folder)}"
        return result
    said = str(error) if isinstance(error, GolfError) else f"{type(error).__name__}: {error}{place_of(error, cfg.tech)}"
    if type(error).__module__.startswith(("torch._inductor", "torch._dynamo")):
        said = f"{type(error).__name__}: {UNCOMPILED}"
    details = "" if isinstance(error, GolfError) else "".join(traceback.format_exception(error))
    # Mode x fails if another rank failed first. On a full disk the reason is left in the result alone.
    with contextlib.suppress(OSError), folder.error.open("x", encoding="utf-8") as file:
        file.write(f"{' '.join(said.split())}\n{details}")
    result.state, result.reason = CRASHED, f"{_first_line(folder, said)}{_how_far(folder)}"
    return result


def _how_far(folder: RunFolder) -> str:
    return f" ({NOT_SCORED})" if folder.is_trained else ""


def _record_reached(result: Result, cfg: Config, folder: RunFolder) -> None:
    """Write steps, seconds and the last validation into the result of a run that was stopped or crashed.

    A process that was killed told its last logged step only. Nothing changes if there was no step.
    """
    for event in folder.events():
        # Later events replace earlier ones, so the last step stays.
        if "step" in event and "train_seconds" in event:
            result.steps, result.train_seconds = event["step"], event["train_seconds"]
            result.tokens_seen = event.get("tokens", result.steps * cfg.data.train_batch_tokens)
        result.train_loss = event.get("train_loss", result.train_loss)
        if event["event"] == "validation":
            result.last_val_step, result.last_val_bpb = event["step"], event["val_bpb"]
    result.budget_train_seconds, result.machine = cfg.budget.train_seconds, machine_kind()
    if result.steps:
        result.step_ms = 1000 * result.train_seconds / result.steps


def _first_line(folder: RunFolder, otherwise: str) -> str:
    """Return the first line of error.txt, or `otherwise` if there is none."""
    try:
        return folder.error.read_text(encoding="utf-8").partition("\n")[0] or otherwise
    except OSError:
        return otherwise


def main() -> int:
    """Run a rank under torchrun. Return 1 for a failure, on which torchrun stops the other ranks."""
    die_with_parent()
    outlive_readers()
    result = run_in_process(RunFolder(Path(sys.argv[1])), *map(int, sys.argv[2:]))
    code = 1 if result.state in (CRASHED, INTERRUPTED, STOPPED) else 0
    from golf.training.ranks import end_rank

    end_rank(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
