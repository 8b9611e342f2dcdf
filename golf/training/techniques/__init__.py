"""One file a technique; importing the package registers all of them. docs/adding_a_technique.md shows how."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
