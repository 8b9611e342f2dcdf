"""One file per technique. Importing the package registers all of them. docs/adding_a_technique.md adds one."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
