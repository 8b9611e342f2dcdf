"""Make a folder for a machine with a GPU and torch but no network: wheels, the embedded text, and a start script.

    python scripts/dev/offline_bundle.py build/offline          # for Python 3.12
    sh build/offline/start.sh                                   # on that machine, in its copy of the checkout

Packages that are large and that no check needs stay out. `start.sh` runs `golf gpu-check`, or the command behind it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from golf.errors import GolfError
from golf.exits import exit_status
from golf.paths import ROOT, resolve
from golf.settings.composition import compose
from golf.training.data.dataset import open_dataset

MOST_BYTES = 64 * 2**20
# Torch is there. The others draw, ask the hub or fit a curve; a run without them says what it leaves out.
LEFT_OUT = ("torch", "scipy", "matplotlib", "plotly", "huggingface-hub", "sympy", "networkx")
ADDED = ("pytest>=8", "hypothesis>=6.100", "brotli>=1.2")
BUILT = "antlr4-python3-runtime==4.9.3"  # a package of hydra's without a wheel
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
START = """#!/bin/sh
# Install the wheels beside this script, put the text in its place, and run `golf gpu-check` or the given command.
# Run it in the root of a checkout.
set -e
bundle=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
if [ ! -f golf/train.py ]; then
    echo "start.sh: run it in the root of a checkout of Golf, where golf/train.py is." >&2
    exit 2
fi
if [ ! -f "$bundle/packages/.installed" ]; then
    "$python" -m pip install --quiet --no-index --no-deps --upgrade --target "$bundle/packages" "$bundle"/wheels/*.whl
    touch "$bundle/packages/.installed"
fi
mkdir -p data
cp -Rn "$bundle/data/." data/
export PYTHONPATH="$PWD:$bundle/packages${PYTHONPATH:+:$PYTHONPATH}"
if [ $# -eq 0 ]; then
    set -- "$python" -m golf gpu-check --report gpu.md experiment=naive_baseline scale=single_gpu data=pydocs
fi
exec "$@"
"""


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder to make, such as build/offline")
    parser.add_argument("--python", default="3.12", help="Python of the machine (default: %(default)s)")
    return parser.parse_args()


def requirements() -> list[str]:
    """Return what the bundle needs: Golf's dependencies without those left out, and what the tests of a GPU need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [r for r in map(Requirement, project["dependencies"]) if canonicalize_name(r.name) not in LEFT_OUT]
    return [*map(str, wanted), *ADDED]


def pip(*arguments: str) -> None:
    """Run pip. Raises `GolfError` with its last line if it fails."""
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, encoding="utf-8")
    if done.returncode:
        raise GolfError(f"pip {arguments[0]} failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")


def download(folder: Path, python: str) -> None:
    """Put the wheels of `requirements` and what those need into `folder`."""
    with tempfile.TemporaryDirectory() as built:
        pip("wheel", "--quiet", "--no-deps", "--wheel-dir", built, BUILT)
        platforms = [f"--platform={name}" for name in PLATFORMS]
        told = ["--only-binary=:all:", f"--python-version={python}", *platforms, f"--find-links={built}"]
        pip("download", "--quiet", *told, f"--dest={folder}", *requirements())


def copy_text(folder: Path) -> None:
    """Copy the embedded text and its tokenizer to where the configuration looks for them below `folder`."""
    cfg = compose(["scale=laptop", "data=pydocs"])
    open_dataset(cfg)
    for path in (cfg.data.path, cfg.data.tokenizer_path):
        source, target = resolve(path), folder / Path(path).relative_to("data")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def make(folder: Path, python: str) -> None:
    """Make the folder and print its size. Raises `GolfError` if it exists or is larger than a bundle may be."""
    if folder.exists():
        raise GolfError(f"{folder} is there already: remove it first.")
    (folder / "wheels").mkdir(parents=True)
    download(folder / "wheels", python)
    copy_text(folder / "data")
    (folder / "start.sh").write_text(START, encoding="utf-8")
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total, largest = sum(sizes.values()), max(sizes, key=lambda path: sizes[path])
    if total > MOST_BYTES:
        raise GolfError(f"{folder} has {total / 2**20:.1f} MiB, more than 64; its largest file is {largest.name}.")
    print(f"{folder}: {total / 2**20:.1f} MiB, {len(list((folder / 'wheels').iterdir()))} wheels for Python {python}")
    print(f"On the machine, in its copy of the checkout: sh {folder}/start.sh")


def main() -> int:
    """Make the bundle that the command line asks for; returns 0."""
    args = options()
    make(args.folder, args.python)
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
