"""A submission's script, read without running it: unpacked text, imports, and signs of forbidden acts.

Static reading finds plain text only, and may misjudge it. Its findings are therefore suspicions, for a person to judge.
"""

from __future__ import annotations

import ast
import base64
import binascii
import bz2
import contextlib
import importlib
import io
import itertools
import lzma
import re
import sys
import tokenize
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import zstandard

from golf.field.script_reads import with_plain_reads
from golf.field.text import UnreadableError, content_of
from golf.tables import any_of, table_of

MOST_LAYERS = 3  # packings within one another
_NAMES = table_of(__file__)
NETWORK = set(_NAMES["network_packages"])
SHELL_NETWORK = re.compile(rf"\b({'|'.join(_NAMES['network_commands'])})\b")
TRAINING_TEXT, VALIDATION_TEXT = any_of(_NAMES["training_text"]), any_of(_NAMES["validation_text"])
TRAINING = any_of(_NAMES["training"])
EVALUATION = re.compile(r"^(?!train_).*(?:eval|score|valid|ttt)", re.IGNORECASE)  # `train_and_eval` trains
LARGEST_BYTES = 64 << 20  # of an unpacked script
MOST_CHARACTERS = 4 << 20  # of source that is parsed; a public script has up to 300,000, and a million take ten seconds
DECODERS = (base64.b85decode, base64.a85decode, base64.b64decode, binascii.unhexlify, base64.b32decode, bytes)
SMALLEST_PAYLOAD = 200  # characters of a string that may hold a program
# A raw stream does not name the size of its dictionary; one that is larger than needed reads it as well.
LZMA2 = [{"id": lzma.FILTER_LZMA2, "dict_size": 64 << 20}]
# A comment, a plain text, or the beginning of an f-string, whose quotes are the group `quote`.
# A string that never ends goes on to the end of its line or of the text, which is read once then.
_TOKEN = re.compile(
    r"""\#[^\n]*|(?<!\w)(?:[fF][rR]?|[rR][fF])(?P<quote>\"{3}|'{3}|["'])"""
    r"""|(?<!\w)(?:[bB]?[rR]?|[rR][bB]|[uU])"""
    r"""(?:\"{3}(?:\\.|[^\\])*?(?:\"{3}|\Z)|'{3}(?:\\.|[^\\])*?(?:'{3}|\Z)"""
    r"""|"(?:\\.|[^"\\\n])*+(?:"|(?=\n)|\\?\Z)|'(?:\\.|[^'\\\n])*+(?:'|(?=\n)|\\?\Z))""",
    re.DOTALL,
)
_RUNS_TEXT = re.compile(rf"\b(?:{'|'.join(_NAMES['runs_text'])})\b")


@dataclass(frozen=True)
class Script:
    """A script after unpacking."""

    text: str  # source that runs in the end
    layers: tuple[str, ...]  # codecs that it was packed in, the outermost first
    tree: ast.Module | None
    problem: str = ""
    is_still_packed: bool = False  # the text executes a string that could not be unpacked


def read_script(path: Path) -> Script:
    """Return the script, unpacked and parsed. A script that is not Python has a problem and no tree."""
    try:
        raw = content_of(path, LARGEST_BYTES + 1)
    except UnreadableError as error:
        return Script("", (), None, f"{path.name} {error}")
    if len(raw) > LARGEST_BYTES:
        return Script("", (), None, f"{path.name} has more than {LARGEST_BYTES:,} bytes: no script is that large")
    if not raw.strip():
        return Script("", (), None, f"{path.name} is empty")
    try:
        # Python runs a script in any encoding that the script declares in a comment.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        return Script("", (), None, f"{path.name} cannot be read as UTF-8, and declares no other encoding ({error})")
    return parsed_script(text.replace("\r\n", "\n"), path.name)


def parsed_script(text: str, name: str = "the script") -> Script:
    """Return the script with the source `text`, unpacked and parsed; `name` is for its problem."""
    layers: list[str] = []
    # What is unpacked may be a bomb, so that only the file itself may be larger than a script.
    while len(layers) < (MOST_LAYERS if len(text) <= MOST_CHARACTERS else 1) and (inner := unpacked(text)) is not None:
        layers.append(inner[0])
        text = inner[1]
    if len(text) > MOST_CHARACTERS:
        problem = f"{name} has over {MOST_CHARACTERS:,} characters of source: no script is that large"
        return Script("", tuple(layers), None, problem)
    try:
        return Script(text, tuple(layers), with_plain_reads(parse(text)), is_still_packed=is_packed(text))
    # ast.parse raises ValueError for null bytes, and the last two for expressions that are nested too deeply.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Script(text, tuple(layers), None, f"{name} is not Python that this version reads ({error})")


def parse(text: str) -> ast.Module:
    """Parse a script. Where this Python cannot, f-strings are taken as texts: from Python 3.12 on they may nest quotes.

    Raises as `ast.parse`.
    """
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.parse(_without_format_strings(text))


def _without_format_strings(text: str) -> str:
    """Return a script with an empty text and as many lines in place of every f-string."""
    kept, place = [], 0
    while match := _TOKEN.search(text, place):
        kept.append(text[place : match.start()])
        place = _end_of_format_string(text, match.end(), match["quote"]) if match["quote"] else match.end()
        token = text[match.start() : place]
        kept.append(f'"""{chr(10) * token.count(chr(10))}"""' if match["quote"] else token)
    return "".join([*kept, text[place:]])


def _end_of_format_string(text: str, place: int, quote: str) -> int:
    """Return the place behind the f-string whose content begins at `place`; expressions in it may have any quotes."""
    depth = 0
    while place < len(text):
        if depth and (inner := _TOKEN.match(text, place)):
            place = inner.end() if not inner["quote"] else _end_of_format_string(text, inner.end(), inner["quote"])
        elif not depth and text.startswith(quote, place):
            return place + len(quote)
        elif not depth and text.startswith(("{{", "}}", "\\"), place):
            place += 2
        else:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
    raise SyntaxError("an f-string does not end")


def imported_packages(tree: ast.Module) -> set[str]:
    """Return the top-level packages that a script imports, without the standard library."""
    return {name for name in map(_top, _imported(tree)) if name not in sys.stdlib_module_names}


def _top(module: str) -> str:
    return module.partition(".")[0]


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield imported modules by their whole names, those of `import_module("name")` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("__import__", "import_module"):
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
            yield from (name for name in names if isinstance(name, str))


def _called(node: ast.Call) -> str:
    """Return the last part of a called name: `run` of `subprocess.run`."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def suspicions(tree: ast.Module) -> list[str]:
    """Return signs of network access, of training text in scoring, and of validation text in training."""
    faults = _network(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # Unparsed code has no comments, which may name training text that the function does not touch.
            body = ast.unparse(ast.Module(node.body, []))
            if EVALUATION.search(node.name) and not TRAINING.fullmatch(node.name) and TRAINING_TEXT.search(body):
                faults.append(f"line {node.lineno}: {node.name} names training text")
            if TRAINING.fullmatch(node.name) and VALIDATION_TEXT.search(body):
                faults.append(f"line {node.lineno}: {node.name} names validation text")
    return faults


def _network(tree: ast.Module) -> list[str]:
    """Return imports that open connections; without such imports, calls and shell commands that do."""
    harmless = tuple(_NAMES["harmless_parts"])
    modules = {name for name in _imported(tree) if _top(name) in NETWORK and not name.startswith(harmless)}
    faults = [f"imports {name}: there is no network during evaluation" for name in sorted(set(map(_top, modules)))]
    # An import alone is the suspicion; calls through it would repeat it.
    if faults:
        return faults
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if _called(node) in _NAMES["network_calls"]:
            faults.append(f"line {node.lineno}: {_called(node)} downloads: there is no network during evaluation")
        if _called(node) in _NAMES["shell_calls"] and (match := SHELL_NETWORK.search(_words(node))):
            faults.append(f"line {node.lineno}: it runs {match[0]}: there is no network during evaluation")
    return faults


def _words(call: ast.Call) -> str:
    """Return the plain strings among the arguments as a command line."""
    strings = (n.value for argument in call.args for n in ast.walk(argument) if isinstance(n, ast.Constant))
    return " ".join(s for s in strings if isinstance(s, str))


def unpacked(text: str) -> tuple[str, str] | None:
    """Return (codec, source) of a script whose larger part is one packed string, None for any other script."""
    for payload in _payloads(text):
        for data in _decoded(payload):
            for codec, source in _decompressed(data):
                # Random bytes unpack to a few bytes by accident; a program is longer than its packed form.
                if len(source) >= len(data) and (program := _program(source)) is not None:
                    return codec, program
    return None


def is_packed(text: str) -> bool:
    """Tell whether a script executes a string that does not look like prose."""
    # A long documentation string has words.
    is_prose = (isinstance(p, str) and len(p.split()) > len(p) / 25 for p in _payloads(text))
    return bool(_RUNS_TEXT.search(text)) and not all(is_prose)


def _payloads(text: str) -> list[str | bytes]:
    """Return constants that take more than half of the script's text."""
    # Millions of statements take minutes and gigabytes to parse, and a constant that large stands between two quotes.
    if len(text) > MOST_CHARACTERS and max(map(len, re.split("[\"']", text)[1:-1]), default=0) <= len(text) // 2:
        return []
    try:
        constants = [node for node in ast.walk(parse(text)) if isinstance(node, ast.Constant)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    # `ast.get_source_segment` walks through the whole text for each constant.
    before = [0, *itertools.accumulate(len(line.encode()) for line in text.split("\n"))]
    payloads: list[str | bytes] = []
    for node in constants:
        if not isinstance(node.value, str | bytes) or len(node.value) < SMALLEST_PAYLOAD:
            continue
        end = before[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        if end - before[node.lineno - 1] - node.col_offset > before[-1] // 2:
            payloads.append(node.value)
    return payloads


def _program(source: bytes) -> str | None:
    """Return bytes as the text of a Python program, None if they are none."""
    try:
        if len(text := source.decode("utf-8")) <= MOST_CHARACTERS:
            parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return text


def _decoded(payload: str | bytes) -> Iterator[bytes]:
    """Yield the payload through every text encoding that accepts it."""
    try:
        raw = payload.encode("latin-1") if isinstance(payload, str) else payload
    except UnicodeEncodeError:
        return
    # Lines of a packed text are joined before it is decoded.
    for text in dict.fromkeys((raw, raw.translate(None, b"\r\n"))):
        for decode in DECODERS:
            try:
                yield decode(text)
            except (ValueError, binascii.Error):
                continue


def _decompressed(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (codec, bytes) for every codec that accepts `data`, at most `LARGEST_BYTES` of output."""
    # Raw streams have no marker at their beginning: every codec has to be tried.
    decoders: dict[str, Callable[[], Any]] = {
        # A header can ask for a dictionary of gigabytes, which the limit refuses.
        "lzma": lambda: lzma.LZMADecompressor(memlimit=1 << 30),
        "lzma raw": lambda: lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA2),
        "bz2": bz2.BZ2Decompressor,
        "zlib": zlib.decompressobj,
        # zlib's window bits: 31 reads a gzip header, -15 reads a stream without any header.
        "gzip": lambda: zlib.decompressobj(31),
        "deflate": lambda: zlib.decompressobj(-15),
    }
    for codec, make in decoders.items():
        try:
            out = make().decompress(data, LARGEST_BYTES)
        except (lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, MemoryError):
            continue
        if out:
            yield codec, out
    yield from _with_packages(data)


def _with_packages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the same for codecs outside the standard library; brotli only where it is installed."""
    with contextlib.suppress(zstandard.ZstdError), zstandard.ZstdDecompressor().stream_reader(data) as reader:
        yield "zstd", reader.read(LARGEST_BYTES)
    if find_spec("brotli"):
        brotli = importlib.import_module("brotli")
        with contextlib.suppress(brotli.error):
            yield "brotli", brotli.Decompressor().process(data, output_buffer_limit=LARGEST_BYTES)
