"""One file out of the package: the program of `golf.train_gpt` with what one configuration needs of it.

Modules are found by following imports, put into one namespace, given the configuration's values, and cut down to what
can still be reached under them. A technique that is not selected is not imported, so it leaves no byte.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property
from typing import Any

from golf.artifact.script.flat import Flat, flatten
from golf.artifact.script.fold import fold
from golf.artifact.script.modules import PACKAGE, attach_comments, read_modules
from golf.artifact.script.readable import readable
from golf.artifact.script.scopes import walk
from golf.artifact.script.settings import facts_of, submitted, write_settings
from golf.artifact.script.shake import drop_unreached, shake
from golf.artifact.script.wrapped import minified, wrapped
from golf.errors import GolfError
from golf.settings.config import Config

PROGRAM = "golf.train_gpt"


class Bundle:
    """The exported script of one configuration."""

    def __init__(self, cfg: Config):
        cfg = submitted(cfg)
        techniques = dict.fromkeys(type(technique).__module__ for technique in cfg.tech.values())
        modules = read_modules(["golf.settings.config", *techniques, PROGRAM])
        for module in modules:
            attach_comments(module)
        self.flat, facts = flatten(modules), facts_of(cfg)
        write_settings(self.flat, cfg)
        variables = _variables(self.flat)
        # A variable keeps both ways of its setting in the script: without a sliding score there is none to choose.
        _keep(variables, self.flat, lambda name: name != "EVAL_STRIDE" or cfg.eval.stride > 0)
        facts.open |= {
            tuple(key.split(".")) for keys in ast.literal_eval(variables.value).values() for key in keys.split()
        }
        stored = {type(node).__name__ for node in (cfg.model, *cfg.tech.values())}  # whole, in the artifact's header
        self.settings = set(facts.groups) - stored
        drop_unreached(self.flat)
        fold(self.flat, facts)
        self.facts = facts
        shake(self.flat, self.settings)
        _keep_useful(variables, self.flat)
        shake(self.flat, self.settings)
        _refuse_leftovers(self.flat, set(facts.groups))
        self.title = self.flat.sections[-1].about

    @cached_property
    def readable(self) -> str:
        """Formatted, with comments and types."""
        return readable(self.flat.copy(), self.title)

    @cached_property
    def wrapped(self) -> str:
        """Minified, compressed, self-extracting: the bytes that count."""
        return wrapped(self.minified)

    @cached_property
    def minified(self) -> str:
        return minified(self.flat.copy(), self.facts, self.settings)

    @property
    def packages(self) -> list[str]:
        """Top-level modules that the script imports."""
        within = (n for s in self.flat.statements() for n in walk(s) if isinstance(n, ast.Import | ast.ImportFrom))
        nodes: list[Any] = [*self.flat.imports.values(), *within]
        found = {str(getattr(node, "module", None) or node.names[0].name) for node in nodes}
        return sorted({name.split(".")[0] for name in found})


def _variables(flat: Flat) -> ast.Assign:
    """Where the program says which variable changes which settings when it is run."""
    for node in flat.statements():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ENVIRONMENT":
            return node
    raise GolfError(f"{PROGRAM} has no ENVIRONMENT.")


def _keep_useful(variables: ast.Assign, flat: Flat) -> None:
    """Only the variables for settings that the rest of the program reads."""
    read = set().union(*(flat.uses(node).attributes for node in flat.statements() if node is not variables))
    known = ast.literal_eval(variables.value)
    _keep(variables, flat, lambda name: read.issuperset(known[name].replace(".", " ").split()))


def _keep(variables: ast.Assign, flat: Flat, wanted: Callable[[str], bool]) -> None:
    kept = {name: keys for name, keys in ast.literal_eval(variables.value).items() if wanted(name)}
    variables.value = ast.parse(repr(kept), mode="eval").body
    flat.changed(variables)


def _refuse_leftovers(flat: Flat, settings: set[str]) -> None:
    """What a bundle would get wrong: modules as values, and settings that are not copies of the configuration's."""
    for statement in flat.statements():
        for node in walk(statement):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == PACKAGE:
                raise GolfError(f"The export cannot follow `{ast.unparse(node)}`: import names from modules instead.")
        for call in flat.uses(statement).calls if getattr(statement, "name", "") not in settings else ():
            if isinstance(call.func, ast.Name) and call.func.id in settings and (call.args or call.keywords):
                raise GolfError(
                    f"The export cannot follow `{ast.unparse(call)}`, for it takes every {call.func.id} for the "
                    "configuration's: make it by dataclasses.replace."
                )
