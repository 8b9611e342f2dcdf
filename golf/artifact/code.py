"""The bytes of code that are counted with the model.

The rules count the one script that is submitted. Until a run is exported, its code is taken to be the sources that
training, export and scoring import, wrapped as such scripts are: LZMA, base-85, and a line that unpacks them.
"""

from __future__ import annotations

import base64
import lzma
import re
from collections.abc import Iterable
from pathlib import Path

from golf.paths import ROOT

COUNTED = ("config.py", "errors.py", "model", "optim", "loop", "data", "quant", "artifact", "scoring")
NOT_SUBMITTED = {
    *("documents.py", "pydocs.py", "hub.py"),  # they make or fetch data
    *("upstream.py", "inspection.py", "entropy.py", "quant_gap.py"),  # they look at finished runs
}
ONLY_FOR_CODEC = {"context.py": "context", "context_kernel.py": "context", "context_tables.py": "context"}
WRAPPER = 'import lzma,base64;exec(lzma.decompress(base64.b85decode("")))'


def counted_files(techniques: Iterable[str] = (), codec: str = "zlib") -> list[Path]:
    """Source files of the package that a submission with these techniques and codec contains, in order by folder."""
    package = ROOT / "golf"
    found = _technique_files(package / "techniques", techniques)
    for name in COUNTED:
        path = package / name
        found += [path] if path.is_file() else sorted(path.glob("*.py"))
    return [p for p in found if p.name not in NOT_SUBMITTED and ONLY_FOR_CODEC.get(p.name, codec) == codec]


def _technique_files(folder: Path, selected: Iterable[str]) -> list[Path]:
    """The base and the selected techniques with those that they import; what is not selected leaves no byte."""
    found: set[Path] = set()
    to_visit = ["base", *selected]
    while to_visit:
        path = folder / f"{to_visit.pop()}.py"
        if path not in found and path.exists():  # a technique may be registered from elsewhere
            found.add(path)
            to_visit += re.findall(r"from golf\.techniques\.(\w+) import", path.read_text())
    return sorted(found)


def code_bytes(techniques: Iterable[str] = (), codec: str = "zlib") -> int:
    """Size of the wrapped program in bytes."""
    source = b"".join(path.read_bytes() for path in counted_files(techniques, codec))
    return len(WRAPPER) + len(base64.b85encode(lzma.compress(source, preset=9 | lzma.PRESET_EXTREME)))
