"""Dependencies: what a plain install brings is enough for what needs no extra."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import ROOT

CASEOPS = """
import sys, sentencepiece
from golf.training.data import pydocs, sidecar
from golf.training.data.documents import encode_with_bytes, train_tokenizer
model = train_tokenizer(["The NASA of few words. " * 9] * 9, 300)
tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
list(encode_with_bytes(tokenizer, ["The NASA"]))
print(*{name.partition(".")[0] for name in sys.modules})
"""


def installed_with(names: list[str]) -> set[str]:
    """Return the distributions that pip installs for the requirements `names`, with all that those need."""
    found: set[str] = set()
    waiting = names
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += requires(name) or []
    return found


def test_caseops_data_needs_no_extra() -> None:
    done = subprocess.run([sys.executable, "-c", CASEOPS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain, owners = installed_with(list(project["dependencies"])), packages_distributions()
    imported = set(done.stdout.split()) & owners.keys() - {"golf"}
    assert "google" in imported, "sentencepiece told the text behind each token"
    assert [name for name in imported if not plain & {canonicalize_name(owner) for owner in owners[name]}] == []
