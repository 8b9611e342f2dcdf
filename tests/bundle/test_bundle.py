"""The exported script of the public presets: small, clean, and without a trace of what is not selected."""

import ast
import functools
import re
import subprocess
import sys

import pytest

from golf.bundle.bundle import Bundle
from golf.bundle.wrapped import unwrapped
from golf.composition import compose
from golf.config import Config, technique_types
from golf.errors import GolfError
from tests.support import ROOT

PRESETS = ("naive_baseline", "lower_lr", "fp16_embed_wd3600", "single_h100_8l", "gold6_11l", "pr593_11l")
ON_H100 = [
    *("scale=record", "launch.device=cuda", "launch.compile=full", "launch.nproc=8", "model.attention=sdpa"),
    *("model.compute_dtype=bf16", "optim.muon_dtype=bf16", "eval.dtype=bf16"),
]
ALWAYS = {"torch", "numpy", "sentencepiece"}


@functools.cache
def bundle(experiment: str) -> tuple[Config, Bundle]:
    cfg = compose([f"experiment={experiment}", *ON_H100])
    return cfg, Bundle(cfg)


def test_the_baseline_is_small_and_clean() -> None:
    _, found = bundle("naive_baseline")
    assert len(found.wrapped.encode()) <= 16_000
    assert unwrapped(found.wrapped) == found.minified
    ast.parse(found.minified)
    assert set(found.packages) - set(sys.stdlib_module_names) == ALWAYS
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "-"], input=found.readable, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
    assert max(map(len, found.readable.splitlines())) <= 120
    assert "CRC-32 of the" in found.readable and "# nats per token" in found.readable  # comments are there


def words_of_what_is_left_out(found: Bundle) -> dict[str, str]:
    """Names and texts that only modules outside the bundle have (a technique's, a codec's) → the module."""
    kept = {section.name for section in found.flat.sections}
    files = {".".join(f.relative_to(ROOT).with_suffix("").parts): f.read_text() for f in (ROOT / "golf").rglob("*.py")}
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


@pytest.mark.parametrize("experiment", ["naive_baseline", pytest.param("gold6_11l", marks=pytest.mark.slow)])
def test_what_is_not_selected_leaves_no_byte(experiment: str) -> None:
    """No word of a module that is left out, and of modules that are in it only in part none of the other parts.

    The places where techniques hook into the model (`weight_edits`, `output_hooks`) stay: they are the model's own.
    """
    cfg, found = bundle(experiment)
    program = unwrapped(found.wrapped)
    assert program is not None
    left_out = words_of_what_is_left_out(found)
    unused = {name: kind for name, kind in technique_types().items() if name not in cfg.tech}
    assert {kind.__module__ for kind in unused.values()} <= set(left_out.values())
    present = words_in(found.readable) | words_in(program)
    assert {word: left_out[word] for word in present & left_out.keys()} == {}
    parts = {
        *(kind.__name__ for kind in unused.values()),
        *("CoprimeOrder", "ShuffledOrder", "BatchLoRA", "SGDTrainer", "numba", "brotli", "hydra", "GPTQ"),
        *(() if cfg.optim.muon == "parallel" else ("ParallelMuon",)),
        *(() if cfg.eval.stride else ("score_sliding",)),
        *(() if cfg.quant.codec == "zstd" else ("zstandard",)),
        *(() if cfg.quant.codec == "lzma" else ("lzma",)),
    }
    assert parts & words_in(program) == set()
    names_of_codecs = {"lzma", "brotli"}  # the file format's numbers for them are listed where people read
    assert (parts - names_of_codecs) & present == set()
    assert "import golf" not in found.readable and "from golf" not in found.readable


@pytest.mark.slow
@pytest.mark.parametrize("experiment", PRESETS)
def test_every_preset_holds_what_it_selects_and_nothing_else(experiment: str) -> None:
    cfg, found = bundle(experiment)
    kinds = {name: kind.__name__ for name, kind in technique_types().items()}
    present = {name for name, kind in kinds.items() if f"class {kind}(" in found.readable}
    assert present == set(cfg.tech)
    assert len(found.wrapped.encode()) <= 24_000
    codec = {"zlib": set(), "lzma": set(), "zstd": {"zstandard"}}[cfg.quant.codec]
    assert set(found.packages) - set(sys.stdlib_module_names) == ALWAYS | codec
    assert ("ParallelMuon" in found.readable) == (cfg.optim.muon == "parallel")
    assert ("score_sliding" in found.readable) == (cfg.eval.stride > 0)
    ast.parse(found.minified)


def test_settings_are_those_of_the_configuration() -> None:
    _, found = bundle("naive_baseline")
    assert "train_seconds: float = 600.0" in found.readable
    assert 'path: str = "data/datasets/fineweb10B_sp1024"' in found.readable
    assert "matrix_lr: float = 0.04  # Muon, on the matrices of the blocks" in found.readable


def test_a_script_is_that_of_the_variant_whoever_makes_it_and_wherever() -> None:
    _, found = bundle("naive_baseline")
    here = ["data.path=/home/me/data/datasets/fineweb10B_sp1024", "seed=7", "rules=strict", "note=mine"]
    other = Bundle(compose(["experiment=naive_baseline", *ON_H100, *here]))
    assert other.wrapped == found.wrapped


def test_starting_weights_cannot_be_exported() -> None:
    cfg = compose(["experiment=lower_lr", *ON_H100])
    cfg.model.init_from = "weights.pt"
    with pytest.raises(GolfError, match="train from scratch"):
        Bundle(cfg)
