"""Variables and lasting parts of scripts out of logs and record folders."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from golf.errors import GolfError
from golf.field.env_vars import translate
from golf.field.script_variables import public_variables
from golf.settings.composition import compose as golf_compose
from golf.settings.config import Config, to_dict
from tests.support import ROOT, compose, golf_command

LOGS = ROOT.parent / "shared" / "logs"
RULE = "=" * 100
SCRIPT = """import os
import torch.nn.functional as F


class Hyperparameters:
    num_layers = int(os.environ.get("NUM_LAYERS", 11))
    matrix_lr = float(os.environ.get("MATRIX_LR", 0.026))
    train_batch_tokens = int(os.environ.get("TRAIN_BATCH_TOKENS", 2048 * 48 * 8))
    vocab_size = int(os.environ.get("VOCAB_SIZE", 8192))
    rope_dims = int(os.environ.get("ROPE_DIMS", 16))
    ema_decay = float(os.environ.get("EMA_DECAY", 0.9965))
    muon_beta2 = float(os.environ.get("MUON_BETA2", 0.95))
    lqer_enabled = bool(int(os.environ.get("LQER_ENABLED", "1")))
    lqer_rank = int(os.environ.get("LQER_RANK", 4))
    lqer_top_k = int(os.environ.get("LQER_TOP_K", 3))
    lqer_factor_bits = int(os.environ.get("LQER_FACTOR_BITS", 4))
    lqer_asym_enabled = bool(int(os.environ.get("LQER_ASYM_ENABLED", "1")))
    compressor = os.environ.get("COMPRESSOR", "brotli")
    parallel_start_layer = int(os.environ.get("PARALLEL_START_LAYER", 8))
    reach = int(os.environ.get("REACH_OF_SOMETHING", 7))


class DocumentPackingLoader:
    pass


class ShuffledSequenceLoader:
    pass


def _lqer_pack_asym(a, b, clip_sigmas):
    pass


def train(h, mlp, x):
    ema_state, qo_bank, parallel_post_lambdas = {}, h.matrix_lr, h.parallel_start_layer
    used = h.num_layers, h.train_batch_tokens, h.vocab_size, h.ema_decay, h.lqer_enabled, h.lqer_rank, h.lqer_top_k
    used += h.lqer_asym_enabled, h.compressor, h.reach, h.lqer_factor_bits
    rotary = Rotary(64, base=1e4, train_seq_len=h.train_seq_len, rope_dims=h.rope_dims)
    return F.leaky_relu(mlp(x), negative_slope=0.5).square(), ema_state, qo_bank, parallel_post_lambdas, rotary
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A record folder with a log that prints settings, echoes its script and prints a line of a run."""
    settings = "Hyperparameters:\n  matrix_lr: 0.03\n  lqer_enabled: True\n  num_layers: 11\n  world_size: 8\n"
    echo = f"{RULE}\n{settings}{RULE}\nSource code:\n{RULE}\n{SCRIPT}\n{RULE}\n"
    (tmp_path / "train_seed42.log").write_text(f"{echo}train_shards: 80\nstep:0/20000 val_loss:9.0 val_bpb:3.5\n")
    return tmp_path


def translated(path: Path, line: str = "") -> list[str]:
    found = public_variables(path)
    return translate(line, unread=found.unread, declared=found.defaults, structure=found.structure).overrides


def test_a_log_gives_the_script_and_the_values_of_its_run(folder: Path) -> None:
    found = public_variables(folder)
    assert found.is_script and found.defaults["MATRIX_LR"] == "0.03" and found.defaults["REACH_OF_SOMETHING"] == "7"
    assert found.defaults["TRAIN_BATCH_TOKENS"] == "786432" and "WORLD_SIZE" not in found.defaults
    assert found.unread == {"MUON_BETA2"}


def test_what_a_script_always_has_is_among_the_overrides(folder: Path) -> None:
    cfg = golf_compose(translated(folder))
    assert (cfg.data.loader, cfg.model.within_documents, cfg.eval.documents) == ("packed", True, True)
    assert (cfg.data.name, cfg.optim.muon, cfg.optim.matrix_lr) == ("fineweb_sp8192", "parallel", 0.03)
    assert set(cfg.tech) == {"ema", "leaky_relu", "parallel_lanes", "partial_rope"}
    assert cfg.tech["ema"].decay == 0.9965 and cfg.tech["partial_rope"].reference_len is None
    assert (cfg.tech["parallel_lanes"].form, cfg.tech["parallel_lanes"].first) == ("crossed", 8)
    lqer = cfg.quant.lqer
    assert (lqer.rank, lqer.top, lqer.factors, lqer.error, cfg.quant.codec) == (4, 3, "asymmetric", "weights", "brotli")


def test_low_rank_correction_is_off_or_symmetric_if_the_command_says_so(folder: Path) -> None:
    (folder / "train_gpt.py").write_text(SCRIPT)
    off = golf_compose(translated(folder, "LQER_ENABLED=0 torchrun train_gpt.py"))
    assert off.quant.lqer.rank == 0 and off.quant.embed.clip == "std"
    rows = golf_compose(translated(folder, "LQER_ASYM_ENABLED=0 LQER_RANK=6 torchrun train_gpt.py"))
    assert (rows.quant.lqer.factors, rows.quant.lqer.format, rows.quant.lqer.rank) == ("row", "int4", 6)
    assert golf_compose(translated(folder)).optim.matrix_lr == 0.026, "a script comes before a log"


def test_dead_switches_and_what_has_no_counterpart_are_named(folder: Path) -> None:
    done = golf_command("from-env", "--script", str(folder))
    assert "the script declares and never reads: MUON_BETA2" in done.stderr
    assert "defaults of the script without a counterpart here: REACH_OF_SOMETHING=7" in done.stderr
    assert done.returncode == 1, done.stderr


def test_settings_of_a_log_are_not_the_whole_experiment(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = "tie_embeddings:True embed_lr:0.05 matrix_lr:0.04\nmodel_params:{}\ntrain_seq_len:1024 iterations:20000\n"
    log.write_text(lines.format("17059912"))
    found = public_variables(log)
    assert found.defaults["TIED_EMBED_LR"] == "0.05" and "EMBED_LR" not in found.defaults and not found.is_script
    done = golf_command("from-env", "--script", str(tmp_path))
    assert done.returncode == 1 and "optim.tied_embed_lr=0.05" in done.stdout and "another one" not in done.stderr
    log.write_text(lines.format("18,897,488"))
    done = golf_command("from-env", "--script", str(tmp_path))
    assert "counts 18,897,488 parameters and this model has 17,059,912" in done.stderr
    (tmp_path / "empty").mkdir()
    with pytest.raises(GolfError, match=r"neither train_gpt\.py nor a log"):
        public_variables(tmp_path / "empty")


def test_a_rate_of_a_head_that_is_not_there_is_no_setting(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("tie_embeddings:True embed_lr:0.05 head_lr:0.0 matrix_lr:0.04\n")
    assert "HEAD_LR" not in public_variables(log).defaults
    log.write_text("tie_embeddings:False embed_lr:0.6 head_lr:0.008 matrix_lr:0.04\n")
    assert public_variables(log).defaults["HEAD_LR"] == "0.008" and public_variables(log).defaults["EMBED_LR"] == "0.6"


def test_printed_settings_of_april_have_no_scaled_rope_and_no_windows_beside_phases(tmp_path: Path) -> None:
    names = {"rope_dims": 16, "rope_train_seq_len": 2048, "eval_stride": 64, "train_seq_len": 2048}
    log = tmp_path / "train.log"
    for phases, stride in ({}, 64), ({"phased_ttt_num_phases": 3}, 0):
        lines = "".join(f"  {name}: {value}\n" for name, value in (names | phases).items())
        log.write_text(f"Hyperparameters:\n{lines}train_shards: 80\n")
        cfg = golf_compose(translated(tmp_path))
        assert cfg.tech["partial_rope"].reference_len is None and cfg.eval.stride == stride


MARCH = """import os


class SmearGate(nn.Module):
    def forward(self, x):
        g = torch.sigmoid(self.gate.to(dtype=x.dtype))[None, None, :]
        x_prev = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        return (1 - g) * x + g * x_prev


def main(args):
    rate, slope = float(os.environ.get("MATRIX_LR", 0.025)), float(os.environ.get("LEAKY_RELU_SLOPE", 0.4))
    return SmearGate(512), F.leaky_relu(rate, slope), mixed_quantize_int6(rate)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Parameter(torch.zeros(17059912))


model = GPT()
"""


def test_parts_of_march_are_known_or_said_to_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "train_gpt.py"
    path.write_text(MARCH)
    done = golf_command("from-env", "--script", str(path))
    cfg = golf_compose(shlex.split(done.stdout))
    assert cfg.tech["smear"].form == "blend" and cfg.tech["leaky_relu"].slope == 0.4
    assert done.returncode == 1 and "not in the list: quantization and codec (mixed_quantize_int6)" in done.stderr
    switched = MARCH.replace(
        "return SmearGate(512)", "use = os.environ.get('SMEAR_GATE', '1')\n    return use and SmearGate(512)"
    )
    path.write_text(switched.replace("(1 - g)", "(1.0 - g)"))
    assert (
        golf_compose(shlex.split(golf_command("from-env", "--script", str(path)).stdout)).tech["smear"].form == "blend"
    )
    path.write_text(MARCH.replace("mixed_quantize_int6", "kept").replace("(1 - g) * x", "x"))
    done = golf_command("from-env", "--script", str(path))
    assert done.returncode == 1 and "SmearGate, which has another formula" in done.stderr and "smear" not in done.stdout
    path.write_text(MARCH.replace("mixed_quantize_int6", "kept").replace("SmearGate(512)", "rate"))
    done = golf_command("from-env", "--script", str(path))
    assert done.stderr.count("\n") == 1 and "no known script has these functions" in done.stderr
    assert done.returncode == 1 and "smear" not in done.stdout


def test_a_log_without_settings_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("step:1/20 train_loss:6.9 train_time:131ms\n")
    with pytest.raises(GolfError, match="neither echoes a script nor prints settings"):
        public_variables(tmp_path / "train.txt")


needs_logs = pytest.mark.skipif(not LOGS.is_dir(), reason="needs ../shared/logs, which is not beside this checkout")
SAME_PARAMETERS = ("NaiveBaseline", "LongContextSeq2048", "LowerLR", "SDClip_Loop45x2", "1.0611")


@pytest.mark.slow
@needs_logs
@pytest.mark.parametrize("record", sorted(path.name for path in LOGS.glob("2026*")))
def test_every_public_folder_is_translated_or_said_to_be_another_model(record: str) -> None:
    done = golf_command("from-env", "--script", str(LOGS / record))
    cfg = golf_compose(shlex.split(done.stdout))
    assert cfg.budget.train_seconds == 600 and cfg.data.train_batch_tokens in (524_288, 786_432)
    if record.startswith("2026-04-29"):
        assert done.returncode == 0 and "never reads: EVAL_STRIDE ROPE_TRAIN_SEQ_LEN" in done.stderr
    else:
        assert done.returncode == 1 and "the log prints settings and not the script" in done.stderr
        assert ("it is another one" in done.stderr) == (not record.endswith(SAME_PARAMETERS))


@needs_logs
@pytest.mark.parametrize(
    ("log", "preset", "differ"),
    [
        (
            "2026-04-29_SmearGateBOSFix_3Seed_1.06141/train_seed42_rerun_gptq8s.log",
            "2026-04-29_caseops_smear_lqer_3seeds",
            set(),
        ),
        (
            "instructive/main_2026-04-01_Vocab4096_MLPMult4_WD085_train_seed42.log",
            "2026-04-01_vocab4096_mlp4x",
            {"tech.value_embed.layers"},
        ),
    ],
)
def test_an_echoed_script_is_the_preset_of_its_record(log: str, preset: str, differ: set[str]) -> None:
    own = flat(golf_compose(translated(LOGS / log)))
    known = flat(compose([f"experiment=records/{preset}", "scale=record"]))
    # Layers are counted from either end, and lengths named or left to their default.
    same = differ | {"name", "seed", "model.name", "quant.name", "schedule.warmdown_iters", "tech.xsa.last_n"}
    same |= {"eval.seq_len", "eval.ttt.seq_len", "launch.nproc"}
    assert {key for key in own.keys() | known.keys() if own.get(key) != known.get(key)} <= same


def flat(cfg: Config) -> dict[str, Any]:
    """Return the settings by their full keys."""

    def pairs(node: dict[str, Any], start: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.items():
            found |= pairs(value, f"{start}{key}.") if isinstance(value, dict) else {f"{start}{key}": value}
        return found

    return pairs(to_dict(cfg))
