"""The exported script against the framework, run for real in an environment without it."""

import subprocess
from pathlib import Path

import pytest

from golf.bundle.bundle import Bundle
from golf.composition import compose
from golf.config import Config, technique_types
from golf.errors import GolfError
from golf.submission.environment import clean_environment, plain_variables
from golf.submission.export import rehearse_both, requirements
from golf.submission.rehearsal import rehearse, run_script, small_data, small_variables

ON_CPU = ["scale=record", "launch.device=cpu", "launch.compile=off", "model.attention=sdpa", "data=fineweb_sp1024"]
FLOAT32 = ["model.compute_dtype=fp32", "optim.muon_dtype=fp32", "eval.dtype=fp32"]
PRESETS = ("naive_baseline", "lower_lr", "fp16_embed_wd3600", "single_h100_8l", "gold6_11l", "pr593_11l")


@pytest.mark.slow
def test_script_and_framework_agree_and_a_changed_script_is_refused(tiny_cfg: Config, tmp_path: Path) -> None:
    bundle = Bundle(tiny_cfg)
    python = clean_environment(tmp_path / "environment", requirements(bundle))
    (tmp_path / "a").mkdir()
    found = rehearse(tiny_cfg, bundle.wrapped, python, tmp_path / "a", steps=4)
    assert found.losses >= 4 + 3 + 2 and found.artifact_bytes > 1000 and found.val_bpb > 0
    changed = bundle.readable.replace("matrix_lr: float = 0.04", "matrix_lr: float = 0.05")
    assert changed != bundle.readable
    (tmp_path / "b").mkdir()
    with pytest.raises(GolfError, match="is not the framework"):
        rehearse(tiny_cfg, changed, python, tmp_path / "b", steps=4)


def test_a_clean_environment_has_the_requirements_and_not_the_framework(tmp_path: Path) -> None:
    python = clean_environment(tmp_path / "environment", ["numpy"])
    for name, there in (("numpy", True), ("golf", False), ("torch", False), ("yaml", False), ("pytest", False)):
        done = subprocess.run(
            [python, "-c", f"import {name}"], env=plain_variables(), cwd=tmp_path, capture_output=True
        )
        assert (done.returncode == 0) == there, (name, done.stderr)
    with pytest.raises(GolfError, match="not installed here"):
        clean_environment(tmp_path / "other", ["no-such-package-anywhere"])


@pytest.mark.slow
@pytest.mark.parametrize("experiment", PRESETS)
def test_every_preset_wrapped(experiment: str) -> None:
    cfg = compose([f"experiment={experiment}", *ON_CPU, *FLOAT32])
    bundle = Bundle(cfg)
    assert rehearse_both(cfg, bundle.wrapped, requirements(bundle)).losses > 20


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["naive_baseline", "gold6_11l"])
def test_presets_in_the_readable_form(experiment: str) -> None:
    cfg = compose([f"experiment={experiment}", *ON_CPU, *FLOAT32])
    bundle = Bundle(cfg)
    assert rehearse_both(cfg, bundle.readable, requirements(bundle)).losses > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "package"),
    [
        (["quant=int6_context"], "numba"),
        (
            ["quant=int6_mixed", "quant.codec=brotli", "quant.codec_level=11", "quant.layout=[pack_bits,byte_planes]"],
            "brotli",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_a_codec_names_what_it_needs(overrides: list[str], package: str) -> None:
    cfg = compose(["experiment=naive_baseline", *ON_CPU, *FLOAT32, *overrides])
    bundle = Bundle(cfg)
    assert package in requirements(bundle)
    assert rehearse_both(cfg, bundle.wrapped, requirements(bundle)).losses > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(technique_types()))
def test_every_technique(name: str) -> None:
    needs = [*technique_types()[name].requires, name]  # type: ignore[attr-defined]
    cfg = compose(["experiment=naive_baseline", f"tech=[{','.join(needs)}]", "quant=int6_search", *ON_CPU, *FLOAT32])
    bundle = Bundle(cfg)
    rehearse_both(cfg, bundle.wrapped, requirements(bundle))


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["data.loader=coprime", "model.tie_embeddings=false", "model.unet_skips=false"],
        ["data.loader=shuffled", "schedule.warmdown_fraction=0.5", "schedule.min_lr=0.1"],
        ["quant=int6_mixed", "quant.prune.fraction=0.1", "quant.mlp.rotation=hadamard", "data.shard_order=[0]"],
        ["eval=sliding64", "eval.ttt.method=sgd", "eval.ttt.chunk_tokens=128"],
        ["eval=ttt_lora"],
        ["quant=gptq_int6"],
        ["quant=gptq_own_text", "quant.calibration.tokens=4096"],
        ["quant=sdclip_lqer"],
        ["quant=ternary"],
        ["model.compute_dtype=bf16", "optim.muon_dtype=bf16", "eval.dtype=bf16"],
    ],
    ids=lambda overrides: overrides[0],
)
def test_other_settings(overrides: list[str]) -> None:
    cfg = compose(["experiment=naive_baseline", *ON_CPU, *FLOAT32, *overrides])
    bundle = Bundle(cfg)
    rehearse_both(cfg, bundle.wrapped, requirements(bundle))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["naive_baseline", "pr593_11l"])
def test_two_ranks_under_torchrun_train_on_the_same_tokens(experiment: str, tmp_path: Path) -> None:
    cfg = compose([f"experiment={experiment}", *ON_CPU, *FLOAT32])
    bundle = Bundle(cfg)
    python = clean_environment(tmp_path / "environment", requirements(bundle))
    variables = small_variables(cfg, small_data(tmp_path, cfg), 6)
    run_script(bundle.wrapped, python, tmp_path / "one", {**variables, "RUN_ID": "one"})
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "train_gpt.py").write_text(bundle.wrapped)
    command = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train_gpt.py"]
    environment = plain_variables(**variables, RUN_ID="two")
    done = subprocess.run(command, cwd=tmp_path / "two", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "world_size:2 grad_accum_steps:4" in done.stdout
    losses = [
        [
            float(line.split("train_loss:")[1].split()[0])
            for line in path.read_text().splitlines()
            if "train_loss" in line
        ]
        for path in (tmp_path / "one/logs/one.txt", tmp_path / "two/logs/two.txt")
    ]
    assert len(losses[0]) == 6 and losses[0] == pytest.approx(losses[1], abs=2e-3)
