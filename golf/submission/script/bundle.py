"""One file out of the package: the program of `golf.train_gpt` with what one configuration needs.

Modules are found by following imports, put into one namespace, given the configuration's values, and cut down to what
can still be reached under them. A technique that is not selected is not imported, so it leaves no byte.
"""

from __future__ import annotations

import ast
import math
from functools import cached_property

from golf.errors import GolfError
from golf.settings.config import Config, uses_gptq
from golf.submission.script.evaluation import UNKNOWN
from golf.submission.script.flat import Flat, flatten
from golf.submission.script.fold import fold
from golf.submission.script.modules import attach_comments, cannot_follow, is_ours, read_modules, source_of
from golf.submission.script.readable import readable
from golf.submission.script.settings import facts_of, submitted, write_settings
from golf.submission.script.shake import drop_unreached, shake
from golf.submission.script.syntax import is_docstring
from golf.submission.script.wrapped import minified, wrapped

PROGRAM = "golf.train_gpt"
OWN_SIZE = "Path(__file__).stat().st_size"  # expression of the program for the bytes of its file
# Modules in Triton are in a bundle as text, because Triton reads its functions' source, which no other code needs.
KERNELS = "golf.training.model.kernels"
TEXTS, IMPORTER = "KERNEL_TEXTS", "kernel_module"  # names in its `choice.py`


class Bundle:
    """The exported script of one configuration."""

    def __init__(self, cfg: Config):
        self.packing = cfg.rules.script_packing
        cfg = submitted(cfg)
        self.fills_cap = cfg.quant.fit == "cap" or cfg.quant.prune.to_fit
        modules = read_modules(entries(cfg))
        for module in modules:
            attach_comments(module)
        self.flat, facts = flatten(modules), facts_of(cfg)
        write_settings(self.flat, cfg)
        # A setting that a variable of the environment changes keeps both of its branches.
        for key in " ".join(variables_of(self.flat, cfg).values()).split():
            facts.values[tuple(key.split("."))] = [UNKNOWN]
        # The artifact's header stores these groups whole, so their unread fields have to stay.
        settings = set(facts.groups) - {type(node).__name__ for node in (cfg.model, *cfg.tech.values())}
        # Settings that unreached code assigns to are not open: `fold` must not see that code.
        drop_unreached(self.flat)
        # A pass still sees what the code does that it cuts, so another one may cut more.
        size = math.inf
        while len(self.flat.nodes()) < size:
            size = len(self.flat.nodes())
            fold(self.flat, facts)
            shake(self.flat, settings)
        put_kernels(self.flat)
        refuse_leftovers(self.flat, set(facts.groups))

    @cached_property
    def readable(self) -> str:
        """The source for a reviewer, formatted, with comments and types."""
        text = readable(self.flat)
        # Weights that fill the cap leave room for the script that counts.
        return text.replace(OWN_SIZE, str(len(self.wrapped))) if self.fills_cap else text

    @cached_property
    def wrapped(self) -> bytes:
        """The source whose bytes count: minified, compressed, self-extracting."""
        return wrapped(self.minified, self.packing)

    @cached_property
    def minified(self) -> str:
        """The program inside `wrapped`."""
        return minified(self.flat)

    @property
    def packages(self) -> list[str]:
        """Top-level modules that the script imports."""
        nodes = list(ast.walk(ast.parse(self.minified)))
        names = [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
        names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        return sorted({name.split(".")[0] for name in names})


def entries(cfg: Config) -> list[str]:
    """Return the modules that the script of `cfg` is made of, with all that they import. The program is last."""
    techniques = dict.fromkeys(type(technique).__module__ for technique in cfg.tech.values())
    return ["golf.settings.config", *techniques, PROGRAM]


def variables_of(flat: Flat, cfg: Config) -> dict[str, str]:
    """Return environment variable → settings that it changes, as the program has it after this call."""
    values = (node for node in flat.statements() if isinstance(node, ast.Assign))
    node = next(node for node in values if ast.unparse(node.targets[0]) == "ENVIRONMENT")
    # Without a sliding score or a calibration in the configuration the script has none that these could change.
    useless = {"EVAL_STRIDE": cfg.eval.stride == 0, "CALIBRATION_TOKENS": not uses_gptq(cfg.quant)}
    variables = {name: keys for name, keys in ast.literal_eval(node.value).items() if not useless.get(name)}
    node.value = ast.parse(repr(variables), mode="eval").body
    flat.changed(node)
    return variables


def put_kernels(flat: Flat) -> None:
    """Fill the dict of texts in `flat` with the modules in Triton that its code imports, in place."""
    calls = [node for node in flat.nodes() if isinstance(node, ast.Call)]
    names = {ast.literal_eval(n.args[0]) for n in calls if isinstance(n.func, ast.Name) and n.func.id == IMPORTER}
    for node in flat.statements():
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == TEXTS:
            node.value = ast.parse(repr({name: text_of(name) for name in sorted(names)}), mode="eval").body
            flat.changed(node)


def text_of(name: str) -> str:
    """Return the source of a module in Triton without docstrings and comments. Its annotations have to stay."""
    tree = ast.parse(source_of(f"{KERNELS}.{name}").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [part for part in body if not is_docstring(part)] or [ast.Pass()]
    return ast.unparse(tree) + "\n"


def refuse_leftovers(flat: Flat, settings: set[str]) -> None:
    """Raise `GolfError` for what a bundle would get wrong: modules as values, and settings made with other values."""
    for statement in flat.statements():
        is_settings = isinstance(statement, ast.ClassDef) and statement.name in settings
        for node in ast.walk(statement):
            if is_ours(node):
                raise cannot_follow(node)
            made = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if made in settings and not is_settings and ast.unparse(node) != f"{made}()":
                raise GolfError(
                    f"The export cannot follow `{ast.unparse(node)}`, for it takes every {made} for the "
                    "configuration's: make it by dataclasses.replace."
                )
