"""What a run's log shows."""

import pytest

from golf.run.folder import create_run_folder
from golf.run.runlog import RunLog
from golf.settings.config import Config


@pytest.mark.parametrize(("saved", "shown"), [(3.25, "step 31  loss 3.2500"), (None, "step 31  loss nan")])
def test_after_a_resume_the_loss_of_the_checkpoint_is_shown(
    tiny_cfg: Config, runs: object, saved: float | None, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = RunLog(create_run_folder(tiny_cfg, []), tiny_cfg, is_first=True)
    log.resumed(30, 12.0, saved)
    log.train_step(31, 12.4, None, 1.0)
    log.close()
    assert shown in capsys.readouterr().out
