"""Fixtures for what is compiled."""

import functools

import pytest
import torch


@pytest.fixture
def graphs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace graphs and guards as always, but generate no code for them, which takes minutes."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
