"""One rank of a run in its folder: data, log and keeper, and with them the run itself (`main`)."""

from __future__ import annotations

import contextlib

from golf.errors import GolfError
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.run.runlog import RunLog
from golf.settings.config import Config
from golf.training.data.dataset import open_dataset
from golf.training.loop.main import set_up_torch, train_pack_and_score
from golf.training.loop.run_keeper import RunKeeper
from golf.training.ranks import Ranks
from golf.training.services import Services


def run_rank(cfg: Config, folder: RunFolder, ranks: Ranks, services: Services, code_bytes: int | None) -> Result:
    """Run this rank from data to result. Every rank returns a result; the first rank's is the run's.

    `code_bytes` are those of the script that a submission would contain, None if they are unknown.
    """
    log = RunLog(folder, cfg, is_first=ranks.is_first)
    if cfg.expect and services.about_expected and ranks.is_first:
        log.expected = services.about_expected
    try:
        set_up_torch(cfg)
        # Before the model, so that missing shards end the run at once.
        dataset = open_dataset(cfg)
        keeper = RunKeeper(cfg, folder, dataset, ranks, log, services, code_bytes)
        try:
            train_pack_and_score(cfg, dataset, ranks, keeper)
        except GolfError:
            # A run that diverged, or that a failed proof ends, has a result all the same.
            if not keeper.is_judged:
                raise
        return keeper.result
    # All exceptions, because a stop signal is one, too.
    except BaseException:
        # The note in the log may fail where the run did: on a full disk.
        with contextlib.suppress(GolfError):
            log.cut_short()
        raise
    finally:
        log.close()
