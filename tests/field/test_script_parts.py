"""Parts of a script that no known script has end with status 1 and their names; switches govern what they switch."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from golf.field.env_vars import translate
from golf.field.script_code import dead_code
from golf.field.script_parts import unknown_parts
from golf.field.script_reader import _without_format_strings, parse, read_script
from golf.field.script_variables import public_variables
from golf.settings.composition import compose
from tests.support import ROOT, golf_command

SCRIPTS = ROOT.parent / "shared" / "scripts"
# A small script in the manner of the public ones: what stands here is known, and each mutant below is not.
KNOWN = """import os
import torch
import torch.nn.functional as F
from torch import nn


class Hyperparameters:
    matrix_lr = float(os.environ.get("MATRIX_LR", 0.04))
    activation = os.environ.get("ACTIVATION", "")
    num_layers = int(os.environ.get("NUM_LAYERS", 9))
    model_dim = int(os.environ.get("MODEL_DIM", 512))


class CastedLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class CausalSelfAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.c_q = CastedLinear(dim, dim, bias=False)
        self.proj = CastedLinear(dim, dim, bias=False)
        self.q_gain = nn.Parameter(torch.full((8,), 1.5))

    def forward(self, x):
        q = F.rms_norm(self.c_q(x), (64,))
        return self.proj(F.scaled_dot_product_attention(q, q, q, is_causal=True))


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = CastedLinear(dim, 2 * dim, bias=False)

    def forward(self, x):
        return torch.relu(self.fc(x)).square()


class GPT(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.blocks = nn.ModuleList(MLP(h.model_dim) for _ in range(h.num_layers))
        # As many parameters as the model of the overrides.
        self.tok_emb = nn.Parameter(torch.zeros(17059912 - h.num_layers * 2 * h.model_dim**2))

    def forward(self, x, y):
        return F.cross_entropy(x.float(), y, reduction="mean")


def quantize_state_dict_int8(state):
    return {name: (t / t.abs().amax() * 127).round().to(torch.int8) for name, t in state.items()}


def main(h):
    optimizer = Muon(GPT(h).parameters(), lr=h.matrix_lr, weight_decay=0.0)
    print(f"lr:{h.matrix_lr} activation:{h.activation}")
    return optimizer, zlib.compress(bytes(quantize_state_dict_int8({})), 9)


main(Hyperparameters())
"""
MUTANTS = {  # what a competitor may change, and the name that has to be said
    "is_causal=True": ("is_causal=False", "attention to later tokens"),
    "F.scaled_dot_product_attention(q, q, q, is_causal=True)": ("torch.cumsum(q, 1)", "cumsum"),
    "torch.relu(self.fc(x)).square()": ("F.gelu(self.fc(x))", "MLP: gelu"),
    "F.cross_entropy(": ("F.binary_cross_entropy(", "GPT: binary_cross_entropy"),
    "self.q_gain = nn.Parameter(": ("self.memory = nn.Parameter(", "CausalSelfAttention: memory"),
    "self.fc = CastedLinear(": ("self.router = nn.Linear(", "MLP: router"),
    "MLP(": ("Experts(", "class Experts"),
    "CastedLinear(": ("BinaryLinear(", "class BinaryLinear"),
    "* 127": ("* 31", "quantization with codes up to 31 (quantize_state_dict_int8"),
    "int8(state):": ("int8(state, bits: int = 6):", "quantization to 6 bits (quantize_state_dict_int8"),
    "zlib.compress(": ("lzma.compress(", "codec lzma"),
    'os.environ.get("NUM_LAYERS", 9)': ('os.environ.get("NUM_STAGES", 9)', "NUM_STAGES=9"),
}


STRANGE = "no known script has these functions"  # said of every script here, which no record has


def said(tmp_path: Path, script: str, line: str = "") -> tuple[int, str, str]:
    """Return exit status, overrides and errors, without the list of unknown functions."""
    (tmp_path / "train_gpt.py").write_text(script)
    done = golf_command("from-env", "--script", str(tmp_path / "train_gpt.py"), *([line] if line else []))
    others = [sentence for sentence in done.stderr.splitlines(keepends=True) if not sentence.startswith(STRANGE)]
    assert done.returncode == 2 or len(others) < len(done.stderr.splitlines())
    return done.returncode, done.stdout, "".join(others)


def test_a_script_of_known_parts_is_translated(tmp_path: Path) -> None:
    status, overrides, errors = said(tmp_path, KNOWN)
    assert (status, errors) == (1, "") and compose(shlex.split(overrides)).optim.muon_wd == 0


@pytest.mark.parametrize("before", MUTANTS)
def test_what_no_known_script_has_ends_with_status_1_and_its_name(before: str, tmp_path: Path) -> None:
    after, name = MUTANTS[before]
    assert KNOWN.count(before) >= 1
    status, _, errors = said(tmp_path, KNOWN.replace(before, after))
    assert status == 1 and name in errors


def test_another_number_of_parameters_ends_with_status_1_and_both_numbers(tmp_path: Path) -> None:
    status, overrides, errors = said(tmp_path, KNOWN.replace("17059912", "17322056"))
    assert status == 1 and "model=9l" in overrides
    assert "the script counts 17,322,056 parameters and this model has 17,059,912" in errors
    # The command line decides, too: another width and as many parameters more.
    assert said(tmp_path, KNOWN, "MODEL_DIM=256 torchrun train_gpt.py")[0] == 1
    status, _, errors = said(tmp_path, KNOWN.replace("zeros(17059912", "zeros(args.size - open('x').read()"))
    assert status == 1 and "cannot be counted" in errors


def test_a_switch_of_the_script_governs_its_mark(tmp_path: Path) -> None:
    mlp = "torch.relu(self.fc(x)).square()"
    switched = f'(F.leaky_relu(self.fc(x), 0.5) if self.activation == "leaky" else {mlp[:-9]}).square()'
    for default, expected in (("relu2", []), ("leaky", ["leaky_relu"])):
        script = KNOWN.replace(mlp, switched).replace('"ACTIVATION", ""', f'"ACTIVATION", "{default}"')
        status, overrides, errors = said(tmp_path, script)
        assert list(compose(shlex.split(overrides)).tech) == expected
        assert status == 1 and f"ACTIVATION={default}" in errors, "its other values are not known"
    bigram = "    bigram_hash = bool(int(os.environ.get('BIGRAM_HASH', '0')))\n"
    bigram += "    bigram_buckets = int(os.environ.get('BIGRAM_BUCKETS', 4096))\n"
    script = KNOWN.replace("    num_layers", f"{bigram}    num_layers", 1)
    script = script.replace("return optimizer", "print(h.bigram_hash, h.bigram_buckets)\n    return optimizer")
    assert "bigram" not in said(tmp_path, script)[1] and "bigram" in said(tmp_path, script.replace("'0'", "'1'"))[1]


def test_a_condition_beside_a_switch_that_is_off_is_not_met(tmp_path: Path) -> None:
    init = "        if self._ortho_init and h.model_dim > 64:\n            nn.init.orthogonal_(self.tok_emb)\n"
    script = KNOWN.replace(
        "    num_layers", "    ortho_init = int(os.environ.get('ORTHO_INIT', '0'))\n    num_layers", 1
    )
    script = script.replace("        # As many", f"{init}        # As many")
    assert (
        "ortho_init" not in said(tmp_path, script)[1]
        and "ortho_init" in said(tmp_path, script.replace("'0'", "'1'"))[1]
    )


def test_what_is_off_at_the_defaults_is_not_named(tmp_path: Path) -> None:
    off = "    wide = int(os.environ.get('WIDE', 512))\n    heads = int(os.environ.get('MTP_NUM_HEADS', 0))\n"
    script = KNOWN.replace("    num_layers", f"{off}    num_layers", 1)
    parts = """        if h.wide != h.model_dim:
            self.embed_proj = nn.Linear(h.wide, h.model_dim)
        self.mtp_heads = nn.ModuleList([MLP(8) for _ in range(h.heads)])
"""
    script = script.replace("        # As many", f"{parts}        # As many")
    script = script.replace("class GPT", "class Unbuilt(nn.Module):\n    pass\n\n\nclass GPT")
    tree = ast.parse(script)
    assert not unknown_parts(tree, dead_code(tree, {"WIDE": "512", "MODEL_DIM": "512", "HEADS": "0"}))
    on = unknown_parts(tree, dead_code(tree, {"WIDE": "64", "MODEL_DIM": "512", "HEADS": "1"}))
    assert {part.partition(" (")[0] for part in on} == {"GPT: embed_proj", "GPT: mtp_heads"}


@pytest.mark.parametrize("form", ["{}", "h.{}", "self._{}", "{} and layer > 2"])
@pytest.mark.parametrize("variable", ["{}_ENABLED", "USE_{}", "{}"])
@pytest.mark.parametrize("name", ["dtg", "gate"])
def test_a_part_is_off_also_where_its_argument_has_a_part_of_the_variables_name(
    form: str, variable: str, name: str
) -> None:
    part = f"        if {form.format(name)}:\n            self.own_part = nn.Linear(8, 1, bias=True)\n"
    tree = ast.parse(KNOWN.replace("        # As many", f"{part}        # As many"))
    for value, is_named in (("0", False), ("1", True)):
        dead = dead_code(tree, {variable.format(name.upper()): value})
        assert any("own_part" in p for p in unknown_parts(tree, dead)) is is_named


@pytest.mark.parametrize(
    ("addition", "name"),
    [
        ("def zeropower(g):\n    return 2.0 * g - 1.5 * g**3\n", "orthogonalization by other coefficients (zeropower"),
        (
            "def quantize_rows(name):\n    return name == 'tok_emb.weight'\n",
            "an exception by name in the quantization: tok_emb.weight",
        ),
        ("print(os.environ.get('VOCAB_SIZE', 10240))\n", "a data set with a vocabulary of 10240"),
        ("print(os.environ.get('DATA_PATH', './data/lower_case_text'))\n", "the data set lower_case_text"),
    ],
)
def test_what_changes_the_experiment_without_a_switch_is_named(addition: str, name: str, tmp_path: Path) -> None:
    status, _, errors = said(tmp_path, KNOWN.replace("main(Hyper", f"{addition}main(Hyper"))
    assert status == 1 and name in errors


def test_what_golf_refuses_is_named_beside_the_overrides(tmp_path: Path) -> None:
    settings = "    eval_stride = int(os.environ.get('EVAL_STRIDE', 96))\n"
    settings += "    ttt_enabled = os.environ.get('TTT_ENABLED', '1')\n"
    settings += "    ttt_chunk_tokens = int(os.environ.get('TTT_CHUNK_TOKENS', 32768))\n"
    uses = "print(h.eval_stride, h.ttt_enabled, h.ttt_chunk_tokens)\n    return optimizer"
    script = KNOWN.replace("    num_layers", f"{settings}    num_layers", 1).replace("return optimizer", uses)
    status, overrides, errors = said(tmp_path, script)
    assert status == 1 and "eval.stride=96" in overrides and "is not a multiple of eval.stride, 96" in errors


def test_a_rotary_base_that_grows_with_the_sequence_is_named(tmp_path: Path) -> None:
    rotary = "class Rotary(nn.Module):\n    def forward(self, scale):\n        new_base = self.base * scale\n\n\n"
    status, _, errors = said(tmp_path, KNOWN.replace("class MLP", f"{rotary}class MLP"))
    assert status == 1 and "a rotary base that grows with sequences beyond the training length" in errors


def test_a_constant_decay_of_muon_is_read(tmp_path: Path) -> None:
    assert "optim.muon_wd=0.04" in said(tmp_path, KNOWN.replace("weight_decay=0.0)", "weight_decay=0.04)"))[1]


def test_f_strings_of_python_3_12_are_read(tmp_path: Path) -> None:
    newer = KNOWN.replace("{h.matrix_lr} activation", '{", ".join(f"{k}={v["x"]}" for k, v in h.items())} activation')
    assert newer != KNOWN and said(tmp_path, newer)[:2] == said(tmp_path, KNOWN)[:2]
    assert read_script(tmp_path / "train_gpt.py").problem == ""


@pytest.mark.parametrize("path", sorted((ROOT / "golf").rglob("*.py"))[::6], ids=lambda path: path.name)
def test_without_f_strings_a_program_has_the_same_statements(path: Path) -> None:
    text = path.read_text()
    trees = [ast.parse(text), ast.parse(_without_format_strings(text))]
    places = [[(type(n).__name__, n.lineno) for n in ast.walk(tree) if isinstance(n, ast.stmt)] for tree in trees]
    assert places[0] == places[1] and not any(isinstance(node, ast.JoinedStr) for node in ast.walk(trees[1]))


def test_what_is_no_python_at_all_stays_an_error() -> None:
    for text in ('f"', "f'{", 'x = f"{a', "def f(:", 'f"""{' * 50):
        with pytest.raises((SyntaxError, ValueError)):
            parse(text)


@pytest.mark.slow
@pytest.mark.skipif(not SCRIPTS.is_dir(), reason="needs ../shared/scripts, which is not beside this checkout")
def test_no_public_script_is_silently_another_one() -> None:
    for path in sorted(SCRIPTS.glob("*.py")):
        done = golf_command("from-env", "--script", str(path))
        assert done.returncode == 1 and re.search("not in the list|without a counterpart|another one", done.stderr), (
            path
        )
    found = {path.name[:6]: public_variables(path) for path in sorted(SCRIPTS.glob("*.py"))}

    def tech(name: str) -> list[str]:
        script = found[name]
        made = translate("", unread=script.unread, declared=script.defaults, structure=script.structure)
        return [o for o in made.overrides if o.startswith(("tech=", "optim.muon_wd"))]

    assert all("leaky_relu" not in o for name in ("pr2053", "pr1655") for o in tech(name))
    assert all("bigram" not in o for o in tech("pr487_")) and "optim.muon_wd=0.04" in tech("pr877_")
    assert any("svd" in part for part in unknown_parts(ast.parse((next(SCRIPTS.glob("pr59_*"))).read_text())))
