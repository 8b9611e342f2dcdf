"""Texts of a script: errors without the framework's advice, and settings without choices that the script has not."""

from __future__ import annotations

import ast
import re

from golf.submission.script.flat import Flat
from golf.submission.script.syntax import walk

LONGEST = 100  # characters of a raise or of a comment that may stay as it is


def shorten_texts(flat: Flat, settings: set[str]) -> None:
    """Cut errors, and comments on the fields of `settings`, behind what is wrong and what the field is, in place."""
    for statement in flat.statements():
        for node in walk(statement):
            if isinstance(node, ast.Raise) and len(ast.unparse(node)) > LONGEST and isinstance(node.exc, ast.Call):
                node.exc.args = [_sentence(arg) for arg in node.exc.args]
        for part in statement.body if isinstance(statement, ast.ClassDef) and statement.name in settings else ():
            # `# order of the text; a: … | b: …`, of which only one is in the script.
            about = " ".join(line.removeprefix("#").strip() for line in getattr(part, "above", ())).partition("; ")[0]
            if 0 < len(about) <= LONGEST:
                part.above, part.behind = [], [f"# {about}"]  # type: ignore[attr-defined]


def _sentence(text: ast.expr) -> ast.expr:
    """Return a text up to its first colon or semicolon, behind which advice follows."""
    for i, part in enumerate(text.values if isinstance(text, ast.JoinedStr) else [text]):
        value = part.value if isinstance(part, ast.Constant) else None
        if isinstance(value, str) and (found := re.search(r"[:;] ", value)):
            end = ast.Constant(value[: found.start()] + ".")
            return ast.JoinedStr([*text.values[:i], end]) if isinstance(text, ast.JoinedStr) else end
    return text
