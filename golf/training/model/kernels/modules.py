"""Import of the modules in Triton, which an exported script has as text."""

from __future__ import annotations

import importlib
import linecache
import sys
from types import ModuleType

# Module → text, filled by the export. Triton reads the source of its functions, which a script that was unpacked in
# memory cannot show otherwise.
KERNEL_TEXTS: dict[str, str] = {}


def kernel_module(name: str) -> ModuleType:
    """Import `name` of this folder. Raises what the import raises where Triton is missing or of another version."""
    if name not in KERNEL_TEXTS:
        return importlib.import_module(f"golf.training.model.kernels.{name}")
    if name not in sys.modules:
        text, module = KERNEL_TEXTS[name], ModuleType(name)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(module))
        # Here at last, so that a failed import is tried anew and fails with the same reason.
        sys.modules[name] = module
    return sys.modules[name]
