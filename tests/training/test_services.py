"""A run does without the products beside the core, and says what it then does not know."""

import pytest

from golf.errors import GolfError
from golf.launch.launcher import train_and_score
from golf.launch.preflight import check_inputs
from golf.run.result import CRASHED, OK, read_result
from golf.run.summary import print_result
from golf.settings.config import Config
from golf.training import services
from golf.training.services import NOT_PROVED, UNKNOWN_CODE, Services, code_bytes
from tests.support import OwnDataset, compose, tiny_overrides


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(Services()).items():
        monkeypatch.setattr(services.SERVICES, name, value)


@pytest.mark.usefixtures("alone", "runs")
def test_a_run_without_products_guesses_no_bytes_and_claims_no_proof(
    tiny: OwnDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    result, folder = train_and_score(compose(tiny_overrides(tiny)))
    assert result.state == OK and folder.artifact.stat().st_size == result.artifact_bytes
    assert result.code_bytes is None and result.total_bytes is None
    assert {NOT_PROVED, UNKNOWN_CODE} <= set(result.warnings)
    print_result(result, folder.path)
    assert f"{result.artifact_bytes:,} artifact, and code of unknown size" in capsys.readouterr().out


@pytest.mark.usefixtures("alone", "runs")
def test_an_artifact_over_the_cap_is_seen_without_the_code(tiny: OwnDataset) -> None:
    result, _ = train_and_score(compose([*tiny_overrides(tiny), "budget.artifact_bytes=1000"]))
    assert result.state == "over_bytes" and result.reason.startswith("the artifact alone is ")


@pytest.mark.usefixtures("alone")
def test_what_needs_a_missing_product_is_refused_before_the_run(tiny: OwnDataset) -> None:
    cfg = compose([*tiny_overrides(tiny), "track=wandb"])
    with pytest.raises(GolfError, match="track=wandb needs golf/lab, which is not here"):
        check_inputs(cfg)
    cfg.track.backend, cfg.quant.fit = "none", "cap"
    with pytest.raises(GolfError, match=r"quant.fit=cap .* need golf/submission, which is not here"):
        check_inputs(cfg)


@pytest.mark.usefixtures("alone")
def test_what_fills_the_cap_takes_no_guess_for_the_code(tiny: OwnDataset) -> None:
    with pytest.raises(GolfError, match="bytes of code are unknown"):
        code_bytes(compose(tiny_overrides(tiny)))


@pytest.mark.usefixtures("runs")
def test_a_script_that_cannot_be_made_ends_the_run_before_its_training(
    tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(cfg: Config) -> int:
        raise GolfError("The export cannot follow this.")

    monkeypatch.setattr(services.SERVICES, "code_bytes", refuse)
    result, folder = train_and_score(compose(tiny_overrides(tiny)))
    assert (result.state, result.reason, result.steps) == (CRASHED, "The export cannot follow this.", 0)
    assert read_result(folder.result) == result and not folder.train_log.exists()
