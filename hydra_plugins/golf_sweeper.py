"""Hydra's own sweeper without its trial composition of every job, which takes minutes for a thousand jobs.

Golf's launchers compose every job themselves before anything runs, and report what cannot be composed.
"""

import itertools
from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import Override, RangeSweep, ValueType

from golf.settings.bundles import bundle, on_top


class GolfSweeper(BasicSweeper):
    """A sweeper over all combinations of the listed values, and of these with bundles of overrides (`--variant`)."""

    def __init__(
        self, max_batch_size: int | None, params: dict[str, str] | None = None, variants: list[str] | None = None
    ) -> None:
        super().__init__(max_batch_size, params)
        self.bundles = [bundle(text) for text in variants or ()]

    def get_job_batch(self) -> Sequence[Sequence[str]]:
        """Return the overrides of every job of the next batch."""
        batch = super().get_job_batch()
        return [on_top(job, one) for one in self.bundles for job in batch] if self.bundles else batch

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Do nothing: the launcher checks the batch."""

    @staticmethod
    def split_arguments(overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """Return all combinations in Hydra's order, in batches, with the numbers of ranges as people write them."""
        listed: dict[str, list[str]] = {}
        for override in overrides:
            key = override.get_key_element()
            if override.value_type == ValueType.RANGE_SWEEP:
                listed[key] = [f"{key}={value}" for value in values_of(override)]
            else:
                listed[key] = [value for (value,) in BasicSweeper.split_arguments([override], None)[0]]
        jobs = [list(values) for values in itertools.product(*listed.values())]
        size = max_batch_size or max(1, len(jobs))
        return [jobs[i : i + size] for i in range(0, len(jobs), size)] or [[]]


def values_of(override: Override) -> list[str]:
    """Return the values of a sweep over a list or a range as texts.

    Hydra adds the steps of a range up in binary: that makes 0.30000000000000004 of 0.3, which would be another variant,
    and may reach the end, which is no part of a range.
    """
    values = list(override.sweep_string_iterator())
    if override.value_type != ValueType.RANGE_SWEEP or all(value.lstrip("-").isdigit() for value in values):
        return values
    sweep, rounded = override.value(), [round(float(value), 12) for value in values]
    assert isinstance(sweep, RangeSweep) and sweep.stop is not None
    return [str(x) for x in rounded if (x < sweep.stop if sweep.step > 0 else x > sweep.stop)]
