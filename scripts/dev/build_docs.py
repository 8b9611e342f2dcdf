"""Build the pages of the repository into a searchable site: `python scripts/dev/build_docs.py FOLDER`, or `make docs`.

Pages and the files that they link to are copied with their folders, so that links lead to the same places as in the
repository. A link to nothing ends the build.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#\s]+)|\bsrc=\"([^\"]+)\"")  # of Markdown, and pictures in HTML


def pages() -> list[Path]:
    """Return the Markdown files that are tracked by git, relative to the root."""
    done = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def linked_files(page: Path) -> list[Path]:
    """Return the files, relative to the root, that `page` links to and that are no pages themselves."""
    links = LINK.findall((ROOT / page).read_text("utf-8"))
    targets = [(ROOT / page.parent / (link or picture)).resolve() for link, picture in links]
    return [t.relative_to(ROOT) for t in targets if t.is_file() and t.is_relative_to(ROOT) and t.suffix != ".md"]


def copy_sources(folder: Path) -> None:
    """Copy all pages and what they link to into `folder`."""
    for file in {file for page in pages() for file in [page, *linked_files(page)]}:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, folder / file)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        if importlib.util.find_spec("mkdocs") is None:
            sys.exit("error: the site needs mkdocs, which is not installed: pip install -e '.[docs]'")
        config, site = Path(temporary, "mkdocs.yml"), Path(sys.argv[1]).resolve()
        copy_sources(Path(temporary, "docs"))
        shutil.copyfile(Path(__file__).with_name("docs_site.yml"), config)
        shutil.copy(Path(__file__).with_name("docs_site.css"), Path(temporary, "docs"))
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(config), "-d", str(site)]
        # Its notice on the end of mkdocs-material in May 2027 is not about these pages.
        if subprocess.run(command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode:
            sys.exit("error: the site was not built; the warnings above name the links to mend")
    print(f"open {site / 'index.html'}, or run `python -m http.server -d {site}`, with which its search works")


if __name__ == "__main__":
    main()
