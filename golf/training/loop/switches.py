"""Late switches, and the hooks of techniques around a step: values in buffers, averages of the weights."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from golf.run.progress import Progress
from golf.settings.config import Config, techniques
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Averager, Technique


class Switches:
    """Late switches of a run, and which of them are on, in the order of application."""

    def __init__(self, cfg: Config):
        self.selected: list[Technique] = [t for t in techniques(cfg) if t.is_switch]
        self.names = switch_names(cfg)
        self.on = self._on_at(Progress(0, 0.0, 1.0))

    def advance(self, progress: Progress) -> tuple[str, ...]:
        """Return the names that are on in the step at `progress`. A switch that was on stays on."""
        self.on = tuple(name for name in self.names if name in {*self.on, *self._on_at(progress)})
        return self.on

    def resume(self, active: tuple[str, ...]) -> None:
        """Switch `active` on, for a run that resumes from a checkpoint."""
        self.on = tuple(name for name in self.names if name in {*self.on, *active})

    def never_on(self) -> list[str]:
        """Return a sentence for every switch that was never on."""
        return [f"{name} was never switched on" for name in self.names if name not in self.on]

    def on_in_scores(self) -> tuple[str, ...]:
        """Return the names that are on now and also apply when the model is scored."""
        return tuple(n for t in self.selected if t.scored_with for n in t.switch_names() if n in self.on)

    def later_sets(self) -> list[tuple[str, ...]]:
        """Return every set of names that can be on later in the run, but not at its start."""
        if not self.names:
            return []
        # Switches of different techniques are independent, so any may be first; those of one go on in their order.
        firsts = [[names[:n] for n in range(len(names) + 1)] for t in self.selected if (names := t.switch_names())]
        sets = [tuple(itertools.chain(*parts)) for parts in itertools.product(*firsts)]
        later = [names for names in sets if {*names} > {*self.on}]
        return sorted(later, key=lambda names: (len(names), [self.names.index(name) for name in names]))

    def _on_at(self, progress: Progress) -> tuple[str, ...]:
        return tuple(name for t in self.selected for name in t.names_on(progress))


def switch_names(cfg: Config) -> tuple[str, ...]:
    """Return the names of all late switches of `cfg`, in the order of application."""
    return tuple(name for technique in techniques(cfg) for name in technique.switch_names())


class StepHooks:
    """Hooks of the selected techniques before and after every step of a run."""

    def __init__(self, cfg: Config, model: GPT):
        self.model, self.selected = model, techniques(cfg)
        averagers = ((t.name, t.averager(model)) for t in self.selected)
        self.averagers: dict[str, Averager] = {name: averager for name, averager in averagers if averager is not None}
        # Techniques that do not override the hook are left out, so that a step calls nothing for them.
        self._before = [t for t in self.selected if type(t).before_step is not Technique.before_step]

    def begin_step(self, progress: Progress) -> None:
        for technique in self._before:
            technique.before_step(self.model, progress)

    def switch(self, before: tuple[str, ...], active: tuple[str, ...]) -> None:
        """Tell the techniques which of the switches `active` were off in the step before."""
        for technique in self.selected:
            if active != before:
                technique.at_switch(self.model, tuple(name for name in active if name not in before))

    def after_step(self, progress: Progress) -> None:
        for averager in self.averagers.values():
            averager.update(progress)

    def idle_averages(self) -> list[str]:
        """Return a sentence for every average that averaged nothing: the run did not test it."""
        last = self.model.state_dict()
        failures = []
        for name, averager in self.averagers.items():
            if averager.updates == 0:
                failures.append(f"{name} averaged nothing: no step met its conditions")
            elif all(torch.equal(tensor, last[key]) for key, tensor in averager.weights().items()):
                failures.append(f"{name} left the weights as they were")
        return failures

    def final_weights(self) -> dict[str, Tensor]:
        """Return the weights that are scored and exported: averaged if a technique does that, else the last ones."""
        weights = self.model.scored_weights()
        for averager in self.averagers.values():
            # Averages hold floating-point tensors only, and the rest is taken as it is.
            weights.update((name, tensor) for name, tensor in averager.weights().items() if name in weights)
        return weights
