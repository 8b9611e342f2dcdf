"""Rehearsals: the exported script against the framework, in an environment without the framework."""

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.registry import technique_types
from golf.settings.config import Config
from golf.submission.clean_env import clean_environment, plain_variables
from golf.submission.code_bytes import estimated_code_bytes
from golf.submission.record_folder import requirements
from golf.submission.rehearsal import rehearse, run_script, small_data, small_variables
from golf.submission.script.bundle import Bundle
from tests.ideas.test_wished_ideas import CHECKED
from tests.submission.script.contents import ON_H100, PRESETS, assert_only_what_is_selected
from tests.support import compatible_stacks, compose, further

# At a laptop's width a rehearsal takes a quarter of the time, and the script's code is the same as at full width.
ON_CPU = ["scale=laptop", "launch.device=cpu", "launch.compile=off", "model.attention=sdpa", "data=fineweb_sp1024"]
# Steps of several micro-batches, as those of records are.
ON_CPU += ["data.train_batch_tokens=8192", "data.micro_batches=4"]
FLOAT32 = ["model.compute_dtype=fp32", "optim.muon_dtype=fp32", "eval.dtype=fp32"]
FEW_STEPS = 4
LONGER = {"pr593_11l": 20}  # steps of a rehearsal
# Presets that cases below rehearse: naive_baseline as it is submitted, and two that differ from it in numbers and in a
# float16 embedding.
IN_OTHERS = ("naive_baseline", "lower_lr", "fp16_embed_wd3600")
READABLE = "gold6_11l"  # rehearsed in the form that people read, the others in the wrapped one
# Techniques and settings of no preset. As many as go together share a case, because a rehearsal takes half a minute.
TECHNIQUES_1 = "fused_qkv,gated_attention,value_residual,phase_mix,skip_gates,lawa"
TECHNIQUES_2 = "recurrence,parallel_lanes,swiglu,fake_quant,swa,overtone_init"
OTHER_SETTINGS = {
    "context": "quant=sdclip_gptq quant.codec=context quant.attn.rounding=trellis quant.mlp.rounding=trellis "
    "quant.attn.columns=0.7 quant.mlp.columns=0.7 quant.embed.columns=0.7 quant.trellis.bit_price=0.1 "
    "quant.retrain.steps=2 quant.retrain.by=block quant.calibration.tokens=4096 data.loader=shuffled eval=ttt_lora",
    "tuned": "quant=sdclip_lqer_asym quant.step_sensitivity=0.5 "
    "quant.gptq.drift=true quant.tune.steps=2 quant.calibration.tokens=4096 "
    "quant.codec=context quant.layout=[] quant.mlp.rounding=trellis",
    "brotli": f"tech=[{TECHNIQUES_1}] quant=int6_search quant.codec=brotli quant.codec_level=11 "
    "quant.layout=[pack_bits,byte_planes] quant.prune.fraction=0.1 quant.mlp.rotation=hadamard data.shard_order=[0]",
    "ternary": f"tech=[{TECHNIQUES_2}] quant=ternary quant.mlp.group_size=32 quant.embed.format=fp16 "
    "eval=sliding64 eval.ttt.method=sgd eval.ttt.chunk_tokens=1024",
    "own_text": "quant=gptq_own_text quant.calibration.tokens=4096 data.loader=coprime model.tie_embeddings=false "
    "model.unet_skips=false schedule.stages=[{until:0.4,seq_len:64},{until:0.7,seq_len:128,batch_tokens:16384},{}] "
    "schedule.stage_warmup_steps=1 eval=ttt_lora eval.ttt.lora_chunks=[[128,32]] quant.mlp.finer_columns=8 "
    "eval.tilt.method=ngram eval.tilt.strength=constant eval.tilt.contexts=[3] eval.tilt.least_shares=[0.8] "
    "eval.tilt.least_counts=[1] "
    "optim.muon_wd=0.05 schedule.weight_decay_factors=[1,0.5] schedule.weight_decay_shares=[0.2,1]",
}
MOST_PARTS = (
    # Gains by visit, own MLPs in a loop and formats by sensitivity.
    "2026-03-31_parallel_mini_recurrence",
    # Packed documents with operators, gates, lanes, Polar Express, clips by deviation and low-rank factors.
    "2026-04-27_caseops_lqer_9hp",
    # Sequences that grow in packed rows, short chunks, finer columns. The two presets it builds on have no other parts.
    "2026-04-30_caseops_growing_length",
    # The tilt. The proposal, whose export is rehearsed, has it on top of the one before.
    "2026-05-01_caseops_tilt_calib32",
)
PACKAGES = {"context": "numba", "tuned": "numba", "brotli": "brotli"}
Environments = Callable[[list[str]], Path]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    """Return a function that makes a clean environment once for each set of packages and returns its interpreter."""

    @functools.cache
    def made(packages: tuple[str, ...]) -> Path:
        return clean_environment(tmp_path_factory.mktemp("environment") / "clean", packages)

    return lambda packages: made(tuple(packages))


@pytest.mark.slow
def test_a_changed_script_is_refused(tiny_cfg: Config, environment: Environments, tmp_path: Path) -> None:
    bundle = Bundle(tiny_cfg)
    changed = bundle.readable.replace(f"matrix_lr: float = {tiny_cfg.optim.matrix_lr}", "matrix_lr: float = 0.05")
    assert changed != bundle.readable
    with pytest.raises(GolfError, match="is not the framework"):
        rehearse(tiny_cfg, changed.encode(), environment(requirements(bundle)), tmp_path, steps=4)


def test_a_clean_environment_has_the_requirements_and_not_the_framework(tmp_path: Path) -> None:
    python = clean_environment(tmp_path / "environment", ["numpy"])
    for name, there in (("numpy", True), ("golf", False), ("torch", False), ("yaml", False), ("pytest", False)):
        done = subprocess.run(
            [python, "-c", f"import {name}"], env=plain_variables(), cwd=tmp_path, capture_output=True
        )
        assert (done.returncode == 0) == there, (name, done.stderr)
    with pytest.raises(GolfError, match="not installed here"):
        clean_environment(tmp_path / "other", ["no-such-package-anywhere"])


@functools.cache
def bundled(experiment: str, machine: str) -> tuple[Config, Bundle]:
    """Return a preset for a machine, `cpu` or `h100`, and its bundle. Nobody changes either of them."""
    cfg = compose([f"experiment={experiment}", *(ON_H100 if machine == "h100" else [*ON_CPU, *FLOAT32])])
    return cfg, Bundle(cfg)


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment", [READABLE, *(further(name) for name in PRESETS if name not in (*IN_OTHERS, READABLE))]
)
def test_every_preset(experiment: str, environment: Environments, tmp_path: Path) -> None:
    cfg, bundle = bundled(experiment, "cpu")
    assert_only_what_is_selected(cfg, bundle)
    steps = LONGER.get(experiment, FEW_STEPS)
    script = bundle.readable.encode() if experiment == READABLE else bundle.wrapped
    found = rehearse(cfg, script, environment(requirements(bundle)), tmp_path, steps=steps)
    # Losses of the steps, of three validations and of two final scores.
    assert found.losses >= steps + 3 + 2 and found.artifact_bytes > 1000 and found.val_bpb > 0


@pytest.mark.slow
@pytest.mark.parametrize("experiment", PRESETS)
def test_bytes_of_every_preset(experiment: str) -> None:
    cfg, bundle = bundled(experiment, "h100")
    size = len(bundle.wrapped)
    assert size <= (25_000 if experiment == "naive_baseline" else 33_500)
    assert size / 1.6 < estimated_code_bytes(cfg) < size * 1.6


@pytest.mark.slow
def test_the_script_for_eight_gpus_runs_where_there_is_none(environment: Environments, tmp_path: Path) -> None:
    """The script is in bf16, compiled and for CUDA as it is submitted; a CPU runs it slowly."""
    cfg, bundle = bundled("naive_baseline", "h100")
    assert_only_what_is_selected(cfg, bundle)
    found = rehearse(cfg, bundle.wrapped, environment(requirements(bundle)), tmp_path, steps=FEW_STEPS)
    assert found.losses >= FEW_STEPS + 3 + 2 and found.artifact_bytes > 1000 and found.val_bpb > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_other_settings(name: str, environment: Environments, tmp_path: Path) -> None:
    cfg = compose(["experiment=naive_baseline", *ON_CPU, *FLOAT32, *OTHER_SETTINGS[name].split()])
    bundle = Bundle(cfg)
    assert PACKAGES.get(name, "torch") in requirements(bundle)
    found = rehearse(cfg, bundle.wrapped, environment(requirements(bundle)), tmp_path, steps=FEW_STEPS)
    assert found.losses > FEW_STEPS and found.artifact_bytes > 1000 and found.val_bpb > 0


@pytest.mark.slow
@pytest.mark.parametrize("record", [further(MOST_PARTS[0]), *MOST_PARTS[1:3], further(MOST_PARTS[3])])
def test_records_with_the_most_parts(record: str, environment: Environments, tmp_path: Path) -> None:
    on_cpu = [o for o in ON_CPU if not o.startswith("data=")]
    cfg = compose([f"experiment=records/{record}", *on_cpu, *FLOAT32, "quant.codec_level=1"])
    bundle = Bundle(cfg)
    found = rehearse(cfg, bundle.wrapped, environment(requirements(bundle)), tmp_path, steps=2)
    assert found.losses > 2 and found.artifact_bytes > 1000 and found.val_bpb > 0


@pytest.mark.slow
def test_techniques_of_none_of_these(environment: Environments, tmp_path: Path) -> None:
    """A new technique is rehearsed before anybody lists it above."""
    presets = {name for experiment in PRESETS for name in compose([f"experiment={experiment}"]).tech}
    listed = presets | CHECKED | {*TECHNIQUES_1.split(","), *TECHNIQUES_2.split(",")}
    for number, stack in enumerate(compatible_stacks({*technique_types()} - listed)):
        cfg = compose(["experiment=naive_baseline", *ON_CPU, *FLOAT32, f"tech=[{','.join(stack)}]"])
        bundle = Bundle(cfg)
        folder = tmp_path / str(number)
        found = rehearse(cfg, bundle.wrapped, environment(requirements(bundle)), folder, steps=FEW_STEPS)
        assert found.losses > FEW_STEPS


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["naive_baseline", "pr593_11l"])
def test_two_ranks_under_torchrun_train_on_the_same_tokens(
    experiment: str, environment: Environments, tmp_path: Path
) -> None:
    cfg, bundle = bundled(experiment, "cpu")
    python = environment(requirements(bundle))
    variables = small_variables(cfg, small_data(tmp_path, cfg), 6)
    run_script(bundle.wrapped, python, tmp_path / "one", {**variables, "RUN_ID": "one"})
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "train_gpt.py").write_bytes(bundle.wrapped)
    command = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train_gpt.py"]
    done = subprocess.run(
        command, cwd=tmp_path / "two", env=plain_variables(**variables, RUN_ID="two"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"world_size:2 grad_accum_steps:{cfg.data.micro_batches // 2}" in done.stdout
    losses = [
        [
            float(line.split("train_loss:")[1].split()[0])
            for line in path.read_text().splitlines()
            if "train_loss" in line
        ]
        for path in (tmp_path / "one/logs/one.txt", tmp_path / "two/logs/two.txt")
    ]
    assert len(losses[0]) == 6 and losses[0] == pytest.approx(losses[1], abs=2e-3)
