"""Variables of a public script: defaults, and those that it declares and never reads."""

from __future__ import annotations

import base64
import lzma
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.field.script_variables import public_variables
from tests.support import golf_command

SCRIPT = """import os
from dataclasses import dataclass


class Hyperparameters:
    matrix_lr = float(os.environ.get("MATRIX_LR", 0.04))
    num_layers = int(os.environ.get("NUM_LAYERS", "11"))
    rope_train_seq_len = int(os.environ.get("ROPE_TRAIN_SEQ_LEN", 1024))
    muon_beta2 = float(os.environ.get("MUON_BETA2", 0.95))
    xsa_last_n = int(os.environ.get("XSA_LAST_N", 4))
    gate_window = int(os.environ.get("GATE_WINDOW", 12))
    swa_every: int = int(os.environ.get("SWA_EVERY", 50))
    run_id = os.environ.get("RUN_ID", str(1))


def main(args):
    print(args.matrix_lr, args.num_layers, args.run_id, args.gate_window, getattr(args, "swa_every"))
    if os.environ["DIRECT"] and os.getenv("ALSO"):
        return Hyperparameters().xsa_last_n


class GPT(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.blocks = nn.Parameter(torch.zeros(524032 + layers * 1837320))


model = GPT(Hyperparameters().num_layers)
"""


@pytest.fixture(params=["plain", "packed"])
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "train_gpt.py"
    text = SCRIPT + "".join(f"value_{i} = seeded({i})\n" for i in range(300))
    if request.param == "packed":
        packed = base64.b85encode(lzma.compress(text.encode())).decode()
        text = f"import lzma, base64\nexec(lzma.decompress(base64.b85decode({packed!r})))\n"
    path.write_text(text)
    return path


def test_defaults_and_variables_that_are_never_read(script: Path) -> None:
    found = public_variables(script)
    assert found.unread == {"ROPE_TRAIN_SEQ_LEN", "MUON_BETA2"}
    assert found.defaults["MATRIX_LR"] == "0.04" and found.defaults["NUM_LAYERS"] == "11"
    assert found.defaults["RUN_ID"] is None and found.defaults["DIRECT"] is None and "ALSO" in found.defaults


def test_what_is_no_script_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(GolfError, match="is no file"):
        public_variables(tmp_path / "none.py")
    (tmp_path / "bad.py").write_text("def x(:\n")
    with pytest.raises(GolfError, match="cannot be read as a script"):
        public_variables(tmp_path / "bad.py")
    (tmp_path / "arguments.py").write_text(
        "import argparse\nargparse.ArgumentParser().add_argument('--lr', default=1)\n"
    )
    with pytest.raises(GolfError, match="reads no variable of the environment"):
        public_variables(tmp_path / "arguments.py")


def test_the_command_names_what_the_script_does_not_read(script: Path) -> None:
    line = "MATRIX_LR=0.03 MUON_BETA2=0.9 ROPE_TRAIN_SEQ_LEN=2048 BIGRAM_VOCAB_SIZE=3072 NUM_LAYERS=11 XSA_LAST_N=4 x"
    done = golf_command("from-env", "--script", str(script), line)
    assert done.stdout.split()[2:] == [
        *("optim.matrix_lr=0.03", "model.num_layers=11", "'tech=[xsa]'", "tech.xsa.last_n=4")
    ], done.stderr
    for name in ("MUON_BETA2=0.9", "ROPE_TRAIN_SEQ_LEN=2048"):
        assert f"{name} (the script declares it and never reads it)" in done.stderr
    assert "BIGRAM_VOCAB_SIZE=3072 (the script does not have it)" in done.stderr and done.returncode == 1
    assert "no known script has these functions" in done.stderr and "model value_0" in done.stderr
    assert "and 272 more" in done.stderr


def test_defaults_of_the_script_are_among_the_overrides(script: Path) -> None:
    done = golf_command("from-env", "--script", str(script), "MATRIX_LR=0.03 torchrun train_gpt.py")
    assert done.returncode == 1 and "model.num_layers=11 'tech=[xsa]' tech.xsa.last_n=4" in done.stdout
    assert "select those that the script always has: GATE_WINDOW=12 SWA_EVERY=50" in done.stderr
    assert golf_command("from-env", "--script", str(script.parent / "no.py"), "X=1").returncode == 2


def test_a_name_that_families_share_is_not_translated() -> None:
    done = golf_command("from-env", "GATE_WINDOW=12 torchrun train_gpt.py")
    assert done.returncode == 1 and "not known here" in done.stderr and "GATE_WINDOW=12" in done.stderr
