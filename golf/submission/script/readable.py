"""A bundle as source for a reviewer: formatted, in the order of its modules, with their comments."""

from __future__ import annotations

import ast
import copy
import re
import subprocess
import sys
import textwrap

from golf.errors import GolfError
from golf.submission.script.flat import Flat, Section
from golf.submission.script.modules import PACKAGE
from golf.submission.script.syntax import is_docstring

LINE_LENGTH = 120
# Marks of comments. A syntax tree holds no comments, so that they pass through it as strings.
ABOVE, BEHIND = "\0above ", "\0behind "
# `ast.unparse` takes the first mark of a function without a docstring for one, and writes it with three quotes.
MARK = re.compile(r"""^( *)((?:"{3}|['"])\\x00(above|behind) .*['"])$""")
# A branch that was cut can leave an import, a local or a returned None without use, and conditions in conditions.
FIXES = "B009,F541,I,UP034,F401,F841,PIE790,RUF059,RET501,RET504,RET505,SIM102,SIM103"
INNER = r"(?:[^()\n]|\([^()\n]*\))"  # a character or a pair of parentheses
TUPLE = re.compile(rf"^( *+(?:return|[\w., ]+ =) )\((?!.* for )({INNER}*,{INNER}+)\)$", re.MULTILINE)
LONG_DOCSTRING = re.compile(rf'^(?=.{{{LINE_LENGTH + 1}}})( *+)(.*)"""$', re.MULTILINE)
# ruff parts these from what belongs to them by an empty line.
HEADS = re.compile(r'^(# [\w/]+\.py\b.*| ++.*""")\n\n', re.MULTILINE)
WORD = re.compile(r"(?:\{[^{}]*\}|.)*?(?: |\\n|$)")  # with the space or the end of line behind it
LONG_STRING = re.compile(r"^( *)(return |\w+ = )?(f?)\"(.*)\"(,?)$")


def readable(flat: Flat) -> str:
    """Return the source of `flat`, with what is said about its last module as its docstring."""
    imports = "\n".join(ast.unparse(node) for node in flat.imports.values())
    # The marks of comments go into the trees, and the wrapped script is made from the same ones.
    sections = map(_section, copy.deepcopy(flat.sections))
    parts = [f'"""{flat.sections[-1].about}\n"""', "from __future__ import annotations", imports, *sections]
    # Only formatted text shows which strings make a line too long; cutting them asks for formatting again.
    text = formatted(_with_short_strings(formatted("\n\n".join(parts) + "\n")))
    # The quotes behind a docstring's one paragraph may be too many for its line.
    text = LONG_DOCSTRING.sub(r'\1\2\n\1"""', text)
    # No string spans lines, except docstrings, of which one paragraph is left.
    text = re.sub(r"\n{3,}", "\n\n", text)
    # Behind the imports ruff wants the empty line.
    start = text.index("\n\n", text.index("\n# ")) + 2
    return text[:start] + HEADS.sub(r"\1\n", text[start:])


def _section(section: Section) -> str:
    name = section.name.removeprefix(f"{PACKAGE}.").replace(".", "/")
    # The docstring of the program, the one module that ends in `if __name__`, is the title of the file already.
    is_program = any(isinstance(node, ast.If) for node in section.body)
    title = "" if is_program else section.about.partition("\n")[0]
    about = f"# {name}.py" + (f": {title}" if title else "")
    tree = ast.Module(section.body, [])
    _mark_comments(tree)
    ast.fix_missing_locations(tree)
    return textwrap.shorten(about, LINE_LENGTH, placeholder=" …") + "\n\n\n" + _with_comments(ast.unparse(tree))


def _mark_comments(tree: ast.Module) -> None:
    """Put the comments of statements in `tree` before and behind them as marks, and shorten docstrings, in place."""
    for node in ast.walk(tree):
        for name, body in ast.iter_fields(node):
            if not isinstance(body, list) or not isinstance(next(iter(body), None), ast.stmt):
                continue
            if is_docstring(body[0]) and isinstance(body[0].value.value, str):
                # The other paragraphs tell what other settings would do.
                body[0].value.value = body[0].value.value.split("\n\n")[0].rstrip()
            # A comment behind a block stands behind its head.
            marked = _marks(BEHIND, node) if name == "body" else []
            for part in body:
                marked += [*_marks(ABOVE, part), part, *([] if hasattr(part, "body") else _marks(BEHIND, part))]
            setattr(node, name, marked)


def _marks(place: str, node: ast.AST) -> list[ast.stmt]:
    return [ast.Expr(ast.Constant(place + text)) for text in getattr(node, place.strip("\0 "), ())]


def _with_comments(text: str) -> str:
    """Return `text` with comments for their marks: behind the statement where there is room, else above it."""
    lines: list[str] = []
    for line in text.splitlines():
        if not (match := MARK.match(line)):
            lines.append(line)
            continue
        indent, mark, place = match.groups()
        comment = ast.literal_eval(mark).partition(" ")[2]
        if place == "behind" and len(lines[-1]) + len(comment) + 2 <= LINE_LENGTH and "  #" not in lines[-1]:
            lines[-1] += f"  {comment}"
        else:
            lines.insert(len(lines) - (place == "behind"), indent + comment)
    # `ast.unparse` puts tuples into parentheses.
    return TUPLE.sub(r"\1\2", "\n".join(lines))


def _with_short_strings(source: str) -> str:
    """Return `source` with strings cut between words where one string makes a line too long."""
    lines: list[str] = []
    for line in source.splitlines():
        match = LONG_STRING.match(line) if len(line) > LINE_LENGTH else None
        if match is None or '"""' in line:
            lines.append(line)
            continue
        indent, before, prefix, text, comma = match.groups()
        inner = indent + " " * 4 if before else indent
        pieces = [f'{inner}{prefix}"{piece}"' for piece in _cut(text, LINE_LENGTH - len(inner) - 4)]
        lines += [f"{indent}{before}(", *pieces, f"{indent})"] if before else [*pieces[:-1], pieces[-1] + comma]
    return "\n".join(lines) + "\n"


def _cut(text: str, width: int) -> list[str]:
    """Return `text` in pieces of up to `width` characters, cut behind spaces outside of braces and behind its lines."""
    pieces: list[str] = []
    for word in filter(None, WORD.findall(text)):
        if not pieces or pieces[-1].endswith("\\n") or len(pieces[-1] + word) > width:
            pieces.append("")
        pieces[-1] += word
    return pieces


def formatted(source: str) -> str:
    """Return `source` formatted by ruff, with sorted imports."""
    common = ["--line-length", str(LINE_LENGTH), "--isolated", "--quiet", "--stdin-filename", "train_gpt.py", "-"]
    for command in (["check", "--select", FIXES, "--fix", "--unsafe-fixes", "--exit-zero"], ["format"]):
        arguments = [sys.executable, "-m", "ruff", *command, *common]
        done = subprocess.run(arguments, input=source, capture_output=True, text=True, encoding="utf-8")
        if done.returncode:
            raise GolfError(f"ruff cannot format the exported source: {done.stderr.strip() or done.stdout.strip()}")
        source = done.stdout
    return source
