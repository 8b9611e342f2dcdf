"""Hydra's sweeper that searches with Optuna, `hydra/sweeper=optuna`, and ends in a verdict on the best it has found.

Hydra's own plugin needs another Hydra (hydra-optuna-sweeper 1.3: Hydra 1.4) or an Optuna of 2022 (1.2: Optuna 2).
A search is a sweep like any other: its runs are in the sweep's record, and the same command goes on after a kill,
because the sampler proposes the same values for the same scores.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from golf.settings.usage import DRY_RUN
from hydra_plugins.golf_sweeper import values_of

if TYPE_CHECKING:
    import optuna

# Of two equal configurations one run is the lower half of the time, and the best of many trials nearly always.
REFERENCE_SEEDS = (2001, 2002)  # of the reference beside its own: a search is not measured by one run's luck
FIRST_FRESH_SEED = 1001  # the search's own runs were chosen for their luck, so that the verdict takes no seed of theirs


class OptunaSweeper(Sweeper):
    """A sweeper that asks Optuna's sampler for values and tells it the bits per byte.

    The first runs are the configuration without the searched settings, on several seeds. It is the reference of the
    verdict, and the search has found something if its best is below their mean.
    """

    def __init__(self, trials: int, at_once: int, sampler_seed: int, verdict_seeds: int, params: DictConfig | None):
        self.trials, self.at_once, self.sampler_seed, self.verdict_seeds = trials, at_once, sampler_seed, verdict_seeds
        self.params = dict(params or {})

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what a launcher is made of; the search and the verdict have one each."""
        self.made_of: dict[str, Any] = {"hydra_context": hydra_context, "task_function": task_function}
        self.given: DictConfig = config

    def sweep(self, arguments: list[str]) -> None:
        """Search, print the best, and compare it with the reference on fresh seeds."""
        from golf.errors import GolfError

        given = [f"{key!s}={value!s}" for key, value in self.params.items()] + arguments
        overrides = OverridesParser.create().parse_overrides(given)
        # A later override of a key takes the place of an earlier one.
        last = {o.get_key_element(): o for o in overrides}
        searched = {key: _distribution(o) for key, o in last.items() if o.is_sweep_override()}
        fixed = [str(o.input_line) for o in last.values() if not o.is_sweep_override()]
        if not searched:
            raise GolfError("hydra/sweeper=optuna searches nothing: give a setting as interval(0.01,0.1) or a list.")
        if "seed" in searched:
            raise GolfError(
                "A search over seeds finds the luckiest one: leave seed out, or list seeds in a grid without Optuna."
            )
        if DRY_RUN in os.environ:
            first, verdict = 1 + len(REFERENCE_SEEDS), 2 * self.verdict_seeds
            print(
                f"a dry run: {first} runs of the reference, {self.trials} of the search, at most {verdict} of a verdict"
            )
            return
        best = self._search(fixed, searched)
        if best is None:
            print("The search has found nothing with a better score than the mean of the reference.", flush=True)
            return
        print(f"best of the search: {' '.join(best)}; its verdict comes from fresh seeds", flush=True)
        self._judge(fixed, best)

    def _search(self, fixed: list[str], searched: dict[str, Any]) -> list[str] | None:
        """Run the trials. Return the overrides of the best one; None if none is better than the reference."""
        optuna = _imported()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=self.sampler_seed))
        launcher = self._launcher(Path(self.given.hydra.sweep.dir))
        # `sweep.reference` makes the first run what the others are compared with, also while they run.
        base = [*fixed, *(() if any(o.startswith("sweep.reference=") for o in fixed) else ("sweep.reference=first",))]
        plain = [o for o in base if not o.startswith("seed=")]
        references = [base, *([*plain, f"seed={seed}"] for seed in REFERENCE_SEEDS)]
        scores = [float(done.return_value) for done in launcher.launch(references, 0)]
        # A reference that diverges at times is worse than its other runs say.
        reference = sum(scores) / len(scores)
        count = 0
        while count < self.trials:
            asked = [study.ask(searched) for _ in range(min(self.at_once, self.trials - count))]
            batch = [[*base, *_overrides(trial.params)] for trial in asked]
            for trial, done in zip(asked, launcher.launch(batch, len(references) + count), strict=True):
                score = float(done.return_value)
                # A run that diverged or was pruned is known to be bad, and has no score.
                state = optuna.trial.TrialState.COMPLETE if math.isfinite(score) else optuna.trial.TrialState.PRUNED
                study.tell(trial, score if math.isfinite(score) else None, state=state)
            count += len(asked)
        scored = [(t.value, t.number) for t in study.trials if t.value is not None and t.value < reference]
        return _overrides(study.trials[min(scored)[1]].params) if scored else None

    def _judge(self, fixed: list[str], best: list[str]) -> None:
        """Run reference and best on fresh seeds until that is decided, as a sweep of its own; print its table."""
        from golf.lab.report.results import print_sweep
        from golf.settings.composition import rules_selected

        folder = Path(self.given.hydra.sweep.dir)
        label, _, digest = folder.name.rpartition("-")
        folder = folder.with_name(f"{label}_best-{digest}")
        plain = [o for o in fixed if not o.startswith(("seed=", "sweep.until="))]
        seeds = range(FIRST_FRESH_SEED, FIRST_FRESH_SEED + self.verdict_seeds)
        variants = ([*plain, "sweep.until=decided"], [*plain, "sweep.until=decided", *best])
        self._launcher(folder).launch([[*overrides, f"seed={s}"] for overrides in variants for s in seeds], 0)
        print_sweep(folder.name, [], rules_selected(fixed))

    def _launcher(self, folder: Path) -> Launcher:
        """Return a launcher whose sweep has its record in `folder`."""
        config = self.given.copy()
        with read_write(config), open_dict(config):
            config.hydra.sweep.dir = str(folder)
        return Plugins.instance().instantiate_launcher(config=config, **self.made_of)


def _imported() -> Any:
    from golf.errors import GolfError

    try:
        import optuna
    except ImportError as error:
        raise GolfError("Optuna is not installed: pip install 'golf[optuna]' brings it.") from error
    return optuna


def _distribution(override: Override) -> optuna.distributions.BaseDistribution:
    """Return the distribution of a swept value: interval(a,b) of real numbers, with tag(log, …) or not, or a list."""
    distributions, value = _imported().distributions, override.value()
    is_log = "log" in getattr(value, "tags", ())
    if isinstance(value, IntervalSweep):
        low, high = value.start, value.end
        return distributions.FloatDistribution(low, high, log=is_log)
    return distributions.CategoricalDistribution(values_of(override))


def _overrides(params: dict[str, Any]) -> list[str]:
    # Four digits: a rate of 0.0213478123 would only make labels long.
    return [f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in params.items()]
