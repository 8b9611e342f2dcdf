"""The main job from the command line, as a person runs it."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import golf
from golf.files import write_atomic, write_json
from golf.lab.corpora.own_text import OwnDataset
from golf.run.folder import create_run_folder
from golf.run.result import read_result
from tests.support import (
    PARITY,
    ROOT,
    FinishedRun,
    compose,
    finished_overrides,
    golf_main,
    golf_train,
    metrics,
    only_run,
    parity,
    refusal,
    tiny_overrides,
)

APART_RANKS = ["launch.nproc=2", "optim.muon=parallel", "rules.failed_check=stop"]
APART = """
import os
from dataclasses import dataclass
from golf.training.techniques.base import CHANGES_INIT, Technique, technique

@technique("apart")
@dataclass
class Apart(Technique):
    effect = CHANGES_INIT
    in_step: bool = False

    def edit_model(self, model, cfg):
        model.tok_emb.weight.data.add_(1 + (0 if self.in_step else int(os.environ.get("RANK", "0"))))

    def before_step(self, model, progress):
        if self.in_step and progress.step == 2:
            model.tok_emb.weight.data[int(os.environ.get("RANK", "0"))].add_(0.01)
"""


def write_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine" / "apart"
    folder.mkdir(parents=True)
    (folder / "apart.py").write_text(APART)
    settings = "# @package tech.apart\n# A fault.\ndefaults: [apart_schema, _self_]\n"
    (folder / "apart.yaml").write_text(settings)
    monkeypatch.setenv("GOLF_IDEAS", str(folder.parent))


def test_help_names_every_group_and_needs_no_torch() -> None:
    code = "import sys; from golf.settings.usage import usage; print(usage()); "
    code += "print('torch' in sys.modules, 'hydra' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.endswith("False False\n"), done.stderr
    assert golf_train("--help").stdout in done.stdout and "records/… (51)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 120 and "golf help settings" in done.stdout
    groups = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.strip()}
    assert groups >= {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()}


def test_main_job_trains_packs_reloads_and_scores(finished_run: FinishedRun) -> None:
    done, folder = finished_run.command, finished_run.folder
    files = {p.name for p in folder.iterdir()}
    assert files == {
        *("config.yaml", "config.json", "environment.json", "train.log", "metrics.jsonl", "result.json"),
        *("final_model.safetensors", "artifact.golf", "curves.png", "start"),
    }
    result = read_result(folder / "result.json")
    assert result.state == "ok" and result.steps == 6 and result.tokens_seen == 6 * 512
    assert result.pre_quant and result.post_quant
    assert result.artifact_bytes == (folder / "artifact.golf").stat().st_size
    assert result.total_bytes == result.artifact_bytes + (result.code_bytes or 0)
    assert "from the artifact" in done.stdout and f"{result.post_quant.val_bpb:.4f} bits per byte" in done.stdout
    assert "data=own" in done.stdout and "Traceback" not in done.stderr
    assert (folder / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_reported_score_is_that_of_the_file_on_disk(tiny: OwnDataset, runs: Path) -> None:
    assert golf_main(*tiny_overrides(tiny), "quant=int6_mixed").returncode == 0
    folder = only_run(runs)
    cfg = golf.compose([*tiny_overrides(tiny), "quant=int6_mixed"])
    artifact = golf.load(folder / "artifact.golf")
    model = golf.build_model(cfg)
    model.load_state_dict(artifact.state_dict())
    result = read_result(folder / "result.json")
    assert result.post_quant and golf.score(model, cfg).val_bpb == pytest.approx(result.post_quant.val_bpb, rel=1e-6)
    raw = safetensors.torch.load_file(folder / "final_model.safetensors")
    model.load_state_dict(raw)
    assert result.pre_quant and golf.score(model, cfg).val_bpb == pytest.approx(result.pre_quant.val_bpb, rel=1e-6)
    assert result.quant_gap_bpb == pytest.approx(result.post_quant.val_bpb - result.pre_quant.val_bpb)


def trajectory_overrides(tmp_path: Path) -> list[str]:
    """The shared trajectory case as overrides, starting weights in a file."""
    arrays, settings = parity("trajectory_baseline")
    start = {k.removeprefix("init/"): torch.from_numpy(v) for k, v in arrays.items() if k.startswith("init/")}
    safetensors.torch.save_file(start, tmp_path / "init.safetensors")
    data = PARITY / "tiny_dataset"
    m = settings["model"]
    return [
        *("scale=record", "model=9l", "launch.nproc=1", "launch.device=cpu", "launch.compile=off", "eval.dtype=fp32"),
        *(f"data.path={data}", f"data.tokenizer_path={data}/tiny_400_bpe.model", "data.vocab_size=400"),
        *(f"model.{key}={m[key]}" for key in ("num_layers", "model_dim", "num_heads", "num_kv_heads")),
        *("model.compute_dtype=fp32", f"model.init_from={tmp_path}/init.safetensors", "optim.muon_dtype=bf16"),
        *(f"optim.muon_momentum_warmup_steps={settings['mw']}", f"schedule.iterations={settings['iters']}"),
        *(f"schedule.warmdown_iters={settings['warmdown']}", "schedule.warmup_steps=2", "budget.train_seconds=0"),
        *(f"data.train_batch_tokens={settings['tokens']}", f"data.train_seq_len={settings['seq_len']}"),
        *("eval.val_batch_tokens=4096", "launch.train_log_every=1", "launch.threads=1"),
    ]


def losses(folder: Path) -> np.ndarray:
    return np.array([e["train_loss"] for e in metrics(folder, "train")])


@pytest.mark.slow
def test_public_trajectory_through_the_command_line(runs: Path, tmp_path: Path) -> None:
    arrays, _ = parity("trajectory_baseline")
    done = golf_main(*trajectory_overrides(tmp_path))
    assert done.returncode == 0, done.stderr
    folder, expected = only_run(runs), arrays["train_loss"]
    assert np.max(np.abs(losses(folder) - expected) / expected) < 1e-3
    first, last = metrics(folder, "validation")
    assert (first["val_loss"], first["val_bpb"]) == pytest.approx(tuple(arrays["val_first"][:2]), rel=1e-5)
    assert (last["val_loss"], last["val_bpb"]) == pytest.approx(tuple(arrays["val_last"][:2]), rel=1e-3)


@pytest.mark.slow
def test_two_ranks_train_as_one_does_on_the_shared_data(runs: Path, tmp_path: Path) -> None:
    overrides = [*trajectory_overrides(tmp_path), "optim.muon_dtype=fp32"]
    for nproc in (1, 2):
        assert golf_main(*overrides, f"launch.nproc={nproc}").returncode == 0
    one, two = (losses(p) for p in sorted(runs.glob("*/seed*")))
    assert len(one) == 24 and np.max(np.abs(one - two)) < 1e-3


@pytest.mark.slow
def test_ranks_that_start_from_other_weights_train_nothing(
    tiny: OwnDataset, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: None
) -> None:
    """DDP copies the first rank's weights, parallel Muon does not; no loss shows that ranks are apart."""
    write_apart(tmp_path, monkeypatch)
    done = golf_main(*tiny_overrides(tiny), "tech=[apart]", *APART_RANKS)
    assert done.returncode != 0
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "void" and result.steps == 0
    assert "1 of" in result.reason and "such as tok_emb.weight, before the first step: draw them" in result.reason


@pytest.mark.slow
def test_ranks_that_end_with_other_weights_are_named(
    tiny: OwnDataset, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: None
) -> None:
    write_apart(tmp_path, monkeypatch)
    drifting = ["name=apart", "tech=[apart]", "tech.apart.in_step=true"]
    for overrides in (drifting, ["name=alike"]):
        done = golf_main(*tiny_overrides(tiny), *overrides, *APART_RANKS)
        assert done.returncode == 0, done.stderr
    apart, alike = (read_result(next(runs.glob(f"{name}-*/seed*/result.json"))) for name in ("apart", "alike"))
    (said,) = [warning for warning in apart.warnings if "differ between ranks" in warning]
    assert "such as tok_emb.weight, after the last step: a gradient" in said and apart.state == "ok"
    assert not any("differ between ranks" in warning for warning in alike.warnings)


@pytest.mark.slow
def test_two_ranks_train_as_one_does(finished_run: FinishedRun, tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*finished_overrides(tiny), "launch.nproc=2")
    assert done.returncode == 0, done.stderr
    one, two = finished_run.folder, only_run(runs)
    assert len(losses(two)) == 6 and np.max(np.abs(losses(one) - losses(two))) < 1e-3
    first, second = (read_result(p / "result.json") for p in (one, two))
    assert first.variant_id == second.variant_id
    assert first.post_quant and second.post_quant
    assert first.post_quant.val_bpb == pytest.approx(second.post_quant.val_bpb, abs=1e-3)
    assert first.post_quant.tokens == second.post_quant.tokens
    assert (two / "ranks").is_dir()


@pytest.mark.slow
def test_parallel_muon_trains_as_plain_muon_does(tiny: OwnDataset, runs: Path) -> None:
    forms = ("name=plain",), ("name=one", "optim=parallel_muon"), ("name=two", "optim=parallel_muon", "launch.nproc=2")
    for form in forms:
        done = golf_main(*tiny_overrides(tiny), *form, "optim.grad_clip_norm=0.3", "schedule.iterations=10")
        assert done.returncode == 0, done.stderr
    plain, one, two = (next(runs.glob(f"{name}-*/seed*")) for name in ("plain", "one", "two"))
    assert metrics(one, "train")[-1]["train_loss"] == metrics(plain, "train")[-1]["train_loss"]
    assert len(losses(two)) == 10 and np.max(np.abs(losses(two) - losses(plain))) < 1e-3
    scores = [read_result(p / "result.json").post_quant for p in (plain, two)]
    assert scores[0] and scores[1] and scores[0].val_bpb == pytest.approx(scores[1].val_bpb, abs=1e-3)


@pytest.mark.slow
def test_an_experiment_runs_at_laptop_scale(tiny: OwnDataset, runs: Path) -> None:
    """Rehearsals train the other experiments."""
    shortened = [o for o in tiny_overrides(tiny) if not o.startswith(("scale=", "model="))]
    done = golf_main("experiment=lower_lr", "scale=laptop", *shortened, "schedule.iterations=2")
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.name == "lower_lr" and result.state == "ok"


@pytest.mark.slow
def test_a_run_of_a_sweep_that_is_refused_costs_one_row(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main("-m", *tiny_overrides(tiny), "model.num_heads=4,5", "model.num_kv_heads=1")
    assert done.returncode == 2
    assert len(list(runs.glob("*/seed*/result.json"))) == 1
    assert "2 variants, 2 runs" in done.stdout and done.stdout.count("does not divide") == 1
    assert done.stderr.count("error: ") == 1 and "Traceback" not in done.stderr


@pytest.mark.slow
def test_sweep_over_learning_rates_verbatim(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(
        "-m", "optim.matrix_lr=0.015,0.02,0.025", *tiny_overrides(tiny), "schedule.iterations=2", "rules=strict"
    )
    assert done.returncode == 0, done.stderr
    results = [read_result(p) for p in runs.glob("*/seed1337/result.json")]
    assert len({r.variant_id for r in results}) == 3 and all(r.state == "ok" for r in results)
    assert "Verdicts by rules=strict against optim.matrix_lr=0.015" in done.stdout


LOG_LINES = [
    r".+/train\.log",
    r"val_bpb:enabled tokenizer_kind=sentencepiece tokenizer_path=\S+\.model",
    r"train_loader:dataset:\S+ train_shards:\d+",
    r"val_loader:shards pattern=\S+ tokens:\d+",
    r"model_params:\d+",
    r"world_size:1 grad_accum_steps:4",
    r"sdp_backends:.+",
    r"attention_mode:gqa num_heads:4 num_kv_heads:2",
    r"tie_embeddings:True embed_lr:0\.0175 head_lr:0\.0 matrix_lr:0\.033 scalar_lr:0\.014",
    r"train_batch_tokens:512 train_seq_len:32 iterations:6 warmup_steps:2 max_wallclock_seconds:0\.000",
    r"seed:7",
    r"warmup_step:1/2",
    r"warmup_step:2/2",
    r"step:0/6 val_loss:\d\.\d{4} val_bpb:\d\.\d{4} train_time:0ms step_avg:\d\.\d\dms",
    *(rf"step:{i}/6 train_loss:\d\.\d{{4}} train_time:\d+ms step_avg:\d+\.\d\dms" for i in range(1, 7)),
    r"step:6/6 val_loss:\d\.\d{4} val_bpb:\d\.\d{4} train_time:\d+ms step_avg:\d+\.\d\dms",
    r"peak memory allocated: \d+ MiB reserved: \d+ MiB",
    r"proofs of the trained weights: \d+\.\ds, no training time",
    r"Serialized model: \d+ bytes",
    r"Code size: \d+ bytes",
    r"Total submission size: \d+ bytes",
    r"Serialized model int8\+zlib: \d+ bytes \(payload:\d+ raw_torch:\d+ payload_ratio:\d\.\d\dx\)",
    r"Total submission size int8\+zlib: \d+ bytes",
    r"final_int8_zlib_roundtrip val_loss:\d\.\d{4} val_bpb:\d\.\d{4} eval_time:\d+ms",
    r"final_int8_zlib_roundtrip_exact val_loss:\d\.\d{8} val_bpb:\d\.\d{8}",
    r"total_eval_time:\d+\.\d{3}s",
]


def test_train_log_is_in_the_fields_line_formats(finished_run: FinishedRun) -> None:
    lines = (finished_run.folder / "train.log").read_text().splitlines()
    assert len(lines) == len(LOG_LINES)
    for line, pattern in zip(lines, LOG_LINES, strict=True):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"


def test_over_the_cap_is_a_state_not_a_secret(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), "budget.artifact_bytes=1000")
    assert done.returncode == 1
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "over_bytes" and "bytes over the cap of 1,000" in result.reason
    assert "over_bytes" in done.stdout


@pytest.mark.slow
def test_after_a_damaged_checkpoint_only_what_helps_is_said(tiny: OwnDataset, runs: Path) -> None:
    overrides = [*tiny_overrides(tiny), "launch.checkpoint_seconds=60"]
    folder = create_run_folder(compose(overrides), ["train"])
    part = folder.checkpoint / "step3" / "rank0.safetensors"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"cut off")
    write_json(folder.checkpoint / "latest.json", {"step": 3, "ranks": 1, "train_seconds": 1.0, "train_loss": 3.0})
    done = golf_main(*overrides)
    assert done.returncode == 1
    assert "or give launch.fresh=true to start over" in read_result(folder.result).reason
    assert "The same command" not in done.stdout


def test_a_diverged_run_is_a_state(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), "optim.matrix_lr=1e30", "optim.tied_embed_lr=1e30")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "diverged" and "nan" in result.reason and result.post_quant is None


def shard_with(tiny: OwnDataset, tmp_path: Path, change: str) -> str:
    """A copy of the training shard with one thing wrong, as an override that points to it."""
    folder = tmp_path / "faulty"
    folder.mkdir()
    for source in tiny.folder.iterdir():
        content = source.read_bytes()
        if "train" in source.name:
            content = {"cut": content[:-7], "foreign": b"\0" * 4 + content[4:]}[change]
        (folder / source.name).write_bytes(content)
    return f"data.path={folder}"


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("typo", "did you mean matrix_lr?"),
        ("type", "optim.matrix_lr takes a float, not 'high'"),
        ("heads", "model.num_heads=3 does not divide"),
        ("batch", "data.train_batch_tokens=500 is not a multiple"),
        ("vocabulary", "set data.vocab_size=320"),
        ("folder", "does not exist"),
        ("cut", "cut off or altered"),
        ("foreign", "is not a token shard"),
        ("tokenizer", "is not a SentencePiece model"),
        ("weights", "do not fit the model"),
        ("no weights", "do not exist"),
    ],
)
def test_mistakes_end_in_one_sentence(what: str, sentence: str, tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    safetensors.torch.save_file({"tok_emb.weight": torch.zeros(2, 2)}, tmp_path / "w.safetensors")
    override = {
        "typo": lambda: "optim.matrix_lrr=0.1",
        "type": lambda: "optim.matrix_lr=high",
        "heads": lambda: "model.num_heads=3",
        "batch": lambda: "data.train_batch_tokens=500",
        "vocabulary": lambda: "data.vocab_size=400",
        "folder": lambda: "data.path=/nowhere",
        "cut": lambda: shard_with(tiny, tmp_path, "cut"),
        "foreign": lambda: shard_with(tiny, tmp_path, "foreign"),
        "tokenizer": lambda: f"data.tokenizer_path={tmp_path}/w.safetensors",
        "weights": lambda: f"model.init_from={tmp_path}/w.safetensors",
        "no weights": lambda: f"model.init_from={tmp_path}/none.pt",
    }[what]()
    found = refusal(*tiny_overrides(tiny), override)
    assert sentence in found and "\n" not in found
    assert not runs.exists()


@pytest.mark.parametrize("override", ["optim.matrix_lrr=0.1", "model.num_heads=3", "data.path=/nowhere"])
def test_a_mistake_is_all_that_the_command_prints_and_leaves_nothing(
    override: str, tiny: OwnDataset, runs: Path
) -> None:
    """One mistake that Hydra finds, one that the checks of settings find, one of the inputs."""
    done = golf_main(*tiny_overrides(tiny), override)
    assert done.returncode == 2 and done.stderr == f"error: {refusal(*tiny_overrides(tiny), override)}\n"
    assert not runs.exists()


def test_torchrun_is_refused(tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranks would each make a run folder, and then join one group behind the launcher's back."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    done = golf_main(*tiny_overrides(tiny))
    assert done.returncode == 2 and not runs.exists()
    assert done.stderr.startswith("error: golf starts its ranks itself: use python, not torchrun, and launch.nproc")


@pytest.mark.slow
def test_a_full_disk_ends_in_one_sentence(tiny: OwnDataset, runs: Path) -> None:
    """A limit on file size stands in for a full disk: writing the weights fails, the small result still fits."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    done = golf_train(*tiny_overrides(tiny), preexec_fn=small_files)
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    folder = only_run(runs)
    result = read_result(folder / "result.json")
    assert result.state == "crashed" and "a file may not be that large here" in result.reason
    assert not (folder / "artifact.golf").exists() and not list(folder.glob(".*"))


def test_training_shards_that_turn_foreign_later_are_named(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    """A token beyond the vocabulary far inside a shard shows only when it is reached."""
    folder = tmp_path / "late"
    folder.mkdir()
    for source in tiny.folder.iterdir():
        content = bytearray(source.read_bytes())
        if "train" in source.name:
            content[1024 + 2 * 1500 : 1024 + 2 * 1501] = (999).to_bytes(2, "little")
        (folder / source.name).write_bytes(content)
    done = golf_main(*tiny_overrides(tiny), f"data.path={folder}")
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "crashed" and "hold token 999" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script from elsewhere", "module"])
def test_works_from_another_folder_and_as_a_module(how: str, tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    if how == "module":
        done = subprocess.run(
            [sys.executable, "-m", "golf.train", *tiny_overrides(tiny)], capture_output=True, text=True, cwd=tmp_path
        )
    else:
        done = golf_train(*tiny_overrides(tiny), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert only_run(runs).is_dir() and [p.name for p in tmp_path.iterdir()] == ["runs"]


def test_plain_lines_show_step_loss_speed_and_time_left(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), "budget.train_seconds=100")
    assert re.search(r"\d+%  step \d+  loss \d\.\d{4}  [\d,]+ tokens/s  \d+ s left", done.stdout), done.stdout


def test_config_on_disk_is_what_ran(finished_run: FinishedRun) -> None:
    folder = finished_run.folder
    config = json.loads((folder / "config.json").read_text())
    assert folder.name == "seed7" and config["optim"]["matrix_lr"] == 0.033
    del config["track"]  # whether a key is there is seen when a mirror starts
    assert config["launch"]["device"] == "cpu" and "auto" not in json.dumps(config)


def test_a_score_that_is_no_number_is_no_ok(tiny: OwnDataset, runs: Path) -> None:
    """Weights that a number format cannot hold: the training ends with a loss, and the artifact has none."""
    done = golf_main(*tiny_overrides(tiny), "optim.matrix_lr=1e7", "quant.mlp.format=fp16")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.pre_quant is not None and result.post_quant is not None
    assert (result.state, result.reason) == ("diverged", "a score of the artifact is no number")


@pytest.mark.slow
def test_a_checkpoint_of_other_ranks_is_refused_and_not_offered(tiny: OwnDataset, runs: Path) -> None:
    overrides = [*tiny_overrides(tiny), "launch.checkpoint_seconds=60"]
    folder = create_run_folder(compose(overrides), ["train"])
    state = safetensors.torch.save({"x": torch.zeros(1)})
    for rank in (0, 1):
        write_atomic(folder.checkpoint / "step3" / f"rank{rank}.safetensors", state)
    latest = {"step": 3, "ranks": 2, "train_seconds": 1.0, "train_loss": 3.0, "active": []}
    write_json(folder.checkpoint / "latest.json", latest)
    done = golf_main(*overrides)
    assert done.returncode == 1 and "is of 2 ranks, and this run has 1" in read_result(folder.result).reason
    assert "The same command" not in done.stdout


def test_a_single_run_is_not_swept_until_decided(runs: Path) -> None:
    done = golf_main("sweep.until=decided", "optim.matrix_lr=0.03")
    assert done.returncode == 2 and not runs.exists()
    assert done.stderr.count("\n") == 1 and "add -m and two values of a setting" in done.stderr


def test_a_sweep_over_nothing_is_a_sentence() -> None:
    done = golf_main("-m", "seed=range(1,1)")
    assert done.returncode == 2 and done.stderr == "error: seed=range(1,1) lists no value: write one that has some.\n"
