"""The number of parameters of a script's model, from its source, its defaults and a command line. Nothing is run."""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Mapping

import torch

from golf.field.script_interpreter import BuiltError, Interpreter, LeftError, UncountableError


def parameter_count(tree: ast.Module, variables: Mapping[str, str]) -> int:
    """Return the number of parameters of the model that a script builds.

    `variables` are those of the command line; the script's own defaults hold for the others. Raises `UncountableError`
    where it cannot be told.
    """
    walk = Interpreter(variables)
    try:
        with torch.device("meta"):
            walk.run(tree.body, ChainMap({"__name__": "__main__"}))
    except BuiltError as found:
        return int(found.args[0])
    except (LeftError, RecursionError) as error:
        raise UncountableError("its statements cannot be followed") from error
    raise UncountableError("no place is found that builds it")
