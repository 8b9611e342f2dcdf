"""What an exported script may hold: the program of the framework as far as the configuration selects it."""

import ast
import base64
import bz2
import re
import sys

from golf.idea_folders import ideas
from golf.registry import technique_types
from golf.settings.config import Config
from golf.submission.script.bundle import Bundle
from tests.support import ROOT

PRESETS = ("naive_baseline", "lower_lr", "fp16_embed_wd3600", "single_h100_8l", "gold6_11l", "pr593_11l")
ON_H100 = [
    *("scale=record", "launch.device=cuda", "launch.compile=full", "launch.nproc=8", "model.attention=sdpa"),
    *("model.compute_dtype=bf16", "optim.muon_dtype=bf16", "eval.dtype=bf16", "data=fineweb_sp1024"),
]
ALWAYS = {"torch", "numpy", "sentencepiece"}
CODEC_PACKAGES = {"zlib": set(), "lzma": set(), "zstd": {"zstandard"}}


def unwrapped(script: bytes) -> str:
    """Return the program inside a script that `wrapped` made, as Python itself reads it."""
    calls = (node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call))
    (call,) = (node for node in calls if ast.unparse(node.func) == "bz2.decompress")
    return bz2.decompress(eval(ast.unparse(call.args[0]), {"base64": base64})).decode()


def assert_only_what_is_selected(cfg: Config, found: Bundle) -> None:
    """No word of a module that is left out, and of modules that are in it only in part none of the other parts.

    The places where techniques hook into the model (`weight_edits`, `output_hooks`) stay: they are the model's own.
    """
    program = unwrapped(found.wrapped)
    assert program == found.minified
    ast.parse(program)
    left_out = words_of_what_is_left_out(found)
    unused = {name: kind for name, kind in technique_types().items() if name not in cfg.tech}
    assert {kind.__module__ for kind in unused.values()} <= set(left_out.values())
    present = words_in(found.readable) | words_in(program)
    # Strings in the log and in errors, whoever else is called so.
    names = {cfg.name, cfg.quant.name, cfg.scale.name}
    found_words = {word: left_out[word] for word in (present & left_out.keys()) - names}
    assert found_words == {}, found_words
    parts = {
        *(kind.__name__ for kind in unused.values()),
        *("CoprimeOrder", "ShuffledOrder", "BatchLoRA", "SGDTrainer", "numba", "brotli", "hydra"),
        *(() if cfg.optim.muon == "parallel" else ("ParallelMuon",)),
        *(() if cfg.eval.stride else ("score_sliding",)),
        *(() if cfg.quant.codec == "zstd" else ("zstandard",)),
        *(() if cfg.quant.codec == "lzma" else ("lzma",)),
    }
    names_of_codecs = {"lzma", "brotli"}  # keys of the file format's numbers
    assert (parts - names_of_codecs) & present == set()
    assert names_of_codecs & set(found.packages) <= {cfg.quant.codec}
    assert all(f"class {technique_types()[name].__name__}(" in found.readable for name in cfg.tech)
    assert ("ParallelMuon" in found.readable) == (cfg.optim.muon == "parallel")
    assert ("score_sliding" in found.readable) == (cfg.eval.stride > 0)
    assert set(found.packages) - set(sys.stdlib_module_names) == ALWAYS | CODEC_PACKAGES[cfg.quant.codec]
    assert "import golf" not in found.readable and "from golf" not in found.readable


def words_of_what_is_left_out(found: Bundle) -> dict[str, str]:
    """Names and texts that only modules outside the bundle have (a technique's, a codec's) → the module."""
    kept = {section.name for section in found.flat.sections}
    paths = {".".join(f.relative_to(ROOT).with_suffix("").parts): f for f in (ROOT / "golf").rglob("*.py")}
    paths |= {idea.module: idea.file for idea in ideas().values()}
    files = {name.removesuffix(".__init__"): path.read_text() for name, path in paths.items()}
    common = {word for name in kept for word in re.findall(r"\w+", files[name])}
    words: dict[str, str] = {}
    for name in files.keys() - kept:
        for node in ast.walk(ast.parse(files[name])):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                words[node.name] = name
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                words[node.attr] = name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                words[node.value] = name
    return {word: name for word, name in words.items() if len(word) > 4 and word not in common}


def words_in(source: str) -> set[str]:
    """Of the code: comments say what a setting could be."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    return set(re.findall(r"\w+", ast.unparse(tree)))
