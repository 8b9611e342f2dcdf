"""A model beyond the machine's memory is refused before anything is allocated."""

import resource
import subprocess
import sys

import pytest

from golf.errors import GolfError
from golf.settings.hardware import memory_bytes
from golf.training import memory
from golf.training.memory import check_memory
from golf.training.model.build import build_model
from tests.support import ROOT, compose


def test_what_does_not_fit_is_refused_with_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = compose(["scale=laptop", "model=4l", "launch.device=cpu"])
    params = sum(p.numel() for p in build_model(cfg).parameters())
    monkeypatch.setattr(memory, "memory_bytes", lambda: 8 * params)
    check_memory(cfg)
    cfg.launch.nproc = 2
    with pytest.raises(GolfError, match=rf"has {params:,} parameters: .* on 2 ranks, and this machine has"):
        check_memory(cfg)


@pytest.mark.parametrize("key", ["data.train_batch_tokens", "eval.val_batch_tokens"])
def test_a_batch_that_cannot_fit_is_refused_by_its_setting(key: str) -> None:
    cfg = compose(["scale=laptop", "model=4l", "launch.device=cpu", f"{key}={2**40}"])
    with pytest.raises(GolfError, match=rf"A micro-batch of {key} has [\d,]+ tokens, .* Lower {key} or raise"):
        check_memory(cfg)


def test_a_limit_of_the_process_counts() -> None:
    command = [sys.executable, "-c", "from golf.settings.hardware import memory_bytes; print(memory_bytes())"]
    limit = 3_000_000_000
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert int(done.stdout) == min(limit, memory_bytes() or limit)


def test_a_giant_is_refused_in_one_sentence() -> None:
    giant = ["scale=laptop", "launch.device=cpu", "model.num_layers=400", "model.model_dim=32768"]
    with pytest.raises(GolfError, match=r"weights and gradients alone take [\d,]+ GB, and this machine has \d+ GB"):
        check_memory(compose(giant))
