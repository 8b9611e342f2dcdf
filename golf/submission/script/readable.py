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
TUPLE = re.compile(r"^( *+(?:return|yield|[\w\s.,\[\]:]+ =) )\((.*)\)$")
LONG_DOCSTRING = re.compile(rf'^(?=.{{{LINE_LENGTH + 1}}})( *+)(.*)"""$', re.MULTILINE)
# ruff parts these from what belongs to them by an empty line.
HEADS = re.compile(r'^(# [\w/]+\.py\b.*| ++.*""")\n\n', re.MULTILINE)
LONG_STRING = re.compile(r"^( *)(return |\w+ = )?(f?)\"(.*)\"(,?)$")


def readable(flat: Flat, title: str) -> str:
    """Return the source of `flat` with `title` as its docstring."""
    imports = "\n".join(ast.unparse(node) for node in flat.imports.values())
    # The marks of comments go into the trees, and the wrapped script is made from the same ones.
    sections = map(_section, copy.deepcopy(flat.sections))
    parts = [f'"""{title}\n"""', "from __future__ import annotations", imports, *sections]
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
    for node in section.body:
        _shorten_docstrings(node)
    tree = ast.fix_missing_locations(ast.Module(_with_marks(section.body), []))
    return textwrap.shorten(about, LINE_LENGTH, placeholder=" …") + "\n\n\n" + _with_comments(ast.unparse(tree))


def _shorten_docstrings(node: ast.AST) -> None:
    """Leave the first paragraph of each docstring: the others tell what other settings would do."""
    for part in ast.walk(node):
        body = getattr(part, "body", None)
        if isinstance(body, list) and body and is_docstring(body[0]) and isinstance(body[0].value.value, str):
            body[0].value.value = body[0].value.value.split("\n\n")[0].rstrip()


def _with_marks(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return `body` with the comments of its statements as marks before and behind them."""
    marked: list[ast.stmt] = []
    for node in body:
        for name in ("body", "orelse", "finalbody"):
            if isinstance(inner := getattr(node, name, None), list):
                setattr(node, name, _with_marks(inner))
        for handler in getattr(node, "handlers", ()):
            handler.body = _with_marks(handler.body)
        marked += [_mark(ABOVE, text) for text in getattr(node, "above", ())]
        behind = [_mark(BEHIND, text) for text in getattr(node, "behind", ())]
        if isinstance(inner := getattr(node, "body", None), list):
            # The comment stands behind the head of a block.
            marked.append(node)
            inner[:0] = behind
        else:
            marked += [node, *behind]
    return marked


def _mark(place: str, comment: str) -> ast.stmt:
    return ast.Expr(ast.Constant(place + comment))


def _with_comments(text: str) -> str:
    """Return `text` with comments for their marks: behind the statement where there is room, else above it."""
    lines: list[str] = []
    for line in text.splitlines():
        if not (match := MARK.match(line)):
            lines.append(_without_parentheses(line))
            continue
        indent, mark, place = match.groups()
        comment = ast.literal_eval(mark).partition(" ")[2]
        if place == "behind" and len(lines[-1]) + len(comment) + 2 <= LINE_LENGTH and "  #" not in lines[-1]:
            lines[-1] += f"  {comment}"
        else:
            lines.insert(len(lines) - (place == "behind"), indent + comment)
    return "\n".join(lines)


def _without_parentheses(line: str) -> str:
    """Return `line` without parentheses around a tuple that change nothing, as in `a, b = (c, d)`."""
    if not (match := TUPLE.match(line)):
        return line
    shorter = match[1] + match[2]
    try:
        same = ast.dump(ast.parse(shorter.strip())) == ast.dump(ast.parse(line.strip()))
    except SyntaxError:
        return line
    return shorter if same else line


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
    pieces, start, last, depth = [], 0, 0, 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        is_new_line = text.endswith("\\n", start, i)
        if (i - start >= width and last > start) or is_new_line:
            last = i if is_new_line else last
            pieces.append(text[start:last])
            start = last
        if character == " " and depth == 0:
            last = i + 1
    return [*pieces, text[start:]]


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
