"""Public command lines as overrides: the same experiment, and nothing dropped in silence."""

import dataclasses
import shlex

import pytest

from golf.errors import GolfError
from golf.field.env_names import KEYS, LATE_QAT
from golf.field.env_techniques import variables_of_techniques
from golf.field.env_vars import translate
from golf.registry import Variable, technique_types
from golf.settings.config import ttt_recipe
from tests.support import compose, golf_command

S2 = """
NCCL_IB_DISABLE=1 RUN_ID=fp16embed DATA_PATH=./data/datasets/fineweb10B_sp1024 \\
TOKENIZER_PATH=./data/tokenizers/fineweb_1024_bpe.model VOCAB_SIZE=1024 MLP_HIDDEN=992 \\
MATRIX_LR=0.06 WARMDOWN_ITERS=3600 FP16_EMBED_EXPORT=1 MAX_WALLCLOCK_SECONDS=600 \\
torchrun --standalone --nproc_per_node=8 train_gpt.py
"""


def test_a_record_command_is_the_experiment_preset() -> None:
    found = translate(S2)
    assert found.unknown == [] and found.machine == ["NCCL_IB_DISABLE=1"]
    ours = compose([*found.overrides, "launch.device=cuda"])
    preset = compose(["experiment=fp16_embed_wd3600", "scale=record", "launch.device=cuda"])
    assert ours.name == "fp16embed"
    ours.name, ours.data.path, ours.data.tokenizer_path = preset.name, preset.data.path, preset.data.tokenizer_path
    assert ours == preset


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KEYS))
def test_every_known_variable_sets_its_field(name: str) -> None:
    values = {
        "NUM_HEADS": "16",
        "NUM_KV_HEADS": "2",
        "MODEL_DIM": "256",
        "VOCAB_SIZE": "2048",
        "TIE_EMBEDDINGS": "0",
        "TRAIN_BATCH_TOKENS": "262144",
        "TRAIN_SEQ_LEN": "2048",
        "EVAL_SEQ_LEN": "2048",
        "VAL_BATCH_SIZE": "65536",
        "RUN_ID": "x1",
        "DATA_PATH": "./a/b",
        "TOKENIZER_PATH": "./t.model",
        "WARMDOWN_LAST_FRAC": "0.2",
        "WARMDOWN_FRAC": "0.667",
        "MIN_LR": "0.1",
        "WD_TAPER_START_FRAC": "0.6",
        "WD_TAPER_FINAL_MULT": "0.5",
        "MUON_MOMENTUM": "0.9",
        "MUON_MOMENTUM_WARMUP_START": "0.8",
        "BETA1": "0.8",
        "BETA2": "0.99",
        "TTT_MOMENTUM": "0.5",
        "TTT_EVAL_SEQ_LEN": "512",
        "TTT_BETA1": "0.5",
        "TTT_BETA2": "0.9",
        "GLOBAL_TTT_MOMENTUM": "0.5",
        "GLOBAL_TTT_CHUNK_TOKENS": "4096",
    }
    value = values.get(name, "3")
    beside = "MUON_WD=0.1 " if name == "WD_TAPER_FINAL_MULT" else ""
    cfg = compose(translate(f"{beside}{name}={value} torchrun train_gpt.py").overrides)
    found: object = cfg
    for part in KEYS[name].split("."):
        found = getattr(found, part)
    assert str(found) in (value, f"{value}.0") or (name == "TIE_EMBEDDINGS" and found is False)


def test_calibration_counts_the_batches_of_one_of_eight_ranks() -> None:
    april = translate("GPTQ_CALIBRATION_BATCHES=64 torchrun train_gpt.py")
    other = translate("TRAIN_BATCH_TOKENS=524288 GPTQ_CALIBRATION_BATCHES=16 torchrun train_gpt.py")
    assert [compose(found.overrides).quant.calibration.tokens for found in (april, other)] == [64 * 98_304, 16 * 65_536]


def test_unknown_variables_are_named_and_switched_off_ones_are_not() -> None:
    found = translate(
        "MTP_NUM_HEADS=2 XSA_LAST_N=0 TTT_ENABLED=0 MUON_BETA2=0.95 NEW_IDEA=7 LN_SCALE=0 VE_DIM=64 python train_gpt.py"
    )
    assert found.unknown == ["MTP_NUM_HEADS=2", "NEW_IDEA=7", "VE_DIM=64"]
    assert found.overrides == ["model=9l", "scale=record"]


def test_variables_that_the_scripts_never_read_are_named_and_not_translated() -> None:
    found = translate("MUON_BETA2=0.95 LATE_QAT=1 MATRIX_LR=0.03 torchrun train_gpt.py")
    assert found.without_effect == ["MUON_BETA2=0.95 (never read)", "LATE_QAT=1 (never read)"]
    assert found.overrides == ["model=9l", "scale=record", "optim.matrix_lr=0.03"] and found.unknown == []
    shown = golf_command("from-env", "MUON_BETA2=0.95 torchrun train_gpt.py")
    assert shown.returncode == 0 and "MUON_BETA2=0.95 (never read)" in shown.stderr and "MUON" not in shown.stdout


@pytest.mark.parametrize("name", sorted(LATE_QAT))
def test_late_quantization_that_never_ran_is_named_and_not_translated(name: str) -> None:
    found = translate(f"{name}=0.15 QAT_ENABLED=0 torchrun train_gpt.py")
    assert found.overrides == ["model=9l", "scale=record"] and found.unknown == []
    (sentence,) = found.without_effect
    assert sentence.startswith(f"{name}=0.15 (") and "PR #593" in sentence
    always = translate(f"QAT_ENABLED=1 {name}=0.15 torchrun train_gpt.py")
    assert always.overrides[2:] == ["tech=[fake_quant]"] and len(always.without_effect) == 1
    assert translate(f"{name}=0 torchrun train_gpt.py").without_effect == []


def test_a_name_of_two_techniques_goes_by_the_selected_one() -> None:
    found = translate("SOFT_ROUND_QAT=1 LATE_QAT_THRESHOLD=0.4 torchrun train_gpt.py")
    assert found.overrides[2:] == ["tech=[soft_round]", "tech.soft_round.lr_threshold=0.4"]
    assert found.without_effect == found.unknown == []


def test_the_gate_of_xsa_takes_the_place_of_xsa_and_the_layers_are_named() -> None:
    """PR #2018 sets both. Golf's gate is on every layer."""
    found = translate("GATED_XSA=1 XSA_LAST_N=11 torchrun train_gpt.py")
    assert found.overrides[2:] == ["tech=[gated_xsa]"] and found.unknown == ["XSA_LAST_N=11"]
    plain = translate("GATED_XSA=0 XSA_LAST_N=11 torchrun train_gpt.py")
    assert plain.overrides[2:] == ["tech=[xsa]", "tech.xsa.last_n=11"] and plain.unknown == []


def test_switches_are_off_at_minus_one() -> None:
    line = "XSA_LAST_N=-1 PARALLEL_RESIDUAL_START=-1 ENABLE_LOOPING_AT=-1 LATE_QAT_THRESHOLD=-1 TTT_ENABLED=-1 x"
    found = translate(line)
    assert found.overrides == ["model=9l", "scale=record"] and found.unknown == found.without_effect == []


def test_parallel_residuals_go_by_the_script_they_are_from() -> None:
    april = translate("PARALLEL_RESIDUAL_START=7 x").overrides[2:]
    assert april == ["tech=[parallel_lanes]", "tech.parallel_lanes.form=side_by_side", "tech.parallel_lanes.first=7"]
    march = translate("PARALLEL_START_LAYER=6 PARALLEL_RESIDUAL=1 x").overrides[2:]
    assert march == ["tech=[parallel_lanes]", "tech.parallel_lanes.form=crossed_in_turn", "tech.parallel_lanes.first=6"]
    assert translate("NUM_LOOPS=0 ENABLE_LOOPING_AT=0.5 x").overrides[2:] == []
    assert translate("PARALLEL_RESIDUAL=0 PARALLEL_START_LAYER=7 x").unknown == ["PARALLEL_START_LAYER=7"]


@pytest.mark.parametrize(("enabled", "method"), [("0", "off"), ("-1", "off"), ("1", "lora")])
def test_the_switch_of_test_time_training_counts_beside_its_details(enabled: str, method: str) -> None:
    found = compose(translate(f"TTT_LORA_RANK=8 TTT_ENABLED={enabled} torchrun t.py").overrides)
    assert found.eval.ttt.method == method and found.eval.stride == 0


def test_variables_of_the_hashes() -> None:
    linear = compose(translate("BIGRAM_HASH_BUCKETS=4096 BIGRAM_HASH_DIM=128 torchrun t.py").overrides).tech["bigram"]
    assert (linear.hash, linear.buckets, linear.dim) == ("linear", 4096, 128)
    both = compose(translate("BIGRAM_VOCAB_SIZE=3072 TRIGRAM=1 torchrun t.py").overrides).tech["bigram"]
    assert (both.hash, both.order, both.add_pairs) == ("xor", 3, True)
    pairs = compose(translate("BIGRAM_VOCAB_SIZE=3072 TRIGRAM=0 torchrun t.py").overrides).tech["bigram"]
    assert (pairs.order, pairs.add_pairs) == (2, False)


def test_gates_of_the_april_records() -> None:
    line = "SMEAR_GATE_ENABLED=1 GATE_WINDOW=10 SPARSE_ATTN_GATE_ENABLED=1 SPARSE_ATTN_GATE_SCALE=0.5 torchrun t.py"
    tech = compose(translate(line).overrides).tech
    smear, gate = tech["smear"], tech["gated_attention"]
    assert (smear.form, smear.mask_bos, smear.window) == ("add", True, 10)
    assert (gate.bias, gate.window, gate.scale, gate.multiplier) == (None, 10, 0.5, 1.0)
    gate = compose(translate("GATE_ATTN_OUT=1 torchrun t.py").overrides).tech["gated_attention"]
    assert (gate.bias, gate.window, gate.multiplier) == (None, 12, 2.0)
    gate = compose(translate("GATED_ATTN_ENABLED=1 GATED_ATTN_INIT_STD=0.005 x").overrides).tech["gated_attention"]
    assert (gate.bias, gate.window, gate.init_std) == (None, None, 0.005)


def test_clips_that_follow_the_hessian_are_those_of_the_record() -> None:
    quant = compose(translate("HESSIAN_CLIP_LAMBDA=0.175 torchrun t.py").overrides).quant
    record = compose(["experiment=records/2026-04-06_sp8192_hessian_sdclip"]).quant
    assert (quant.attn, quant.mlp, quant.embed) == (record.attn, record.mlp, record.embed)
    assert translate("HESSIAN_CLIP_LAMBDA=0").overrides == translate("").overrides


def test_switches_of_the_optimizer() -> None:
    found = compose(translate("MUON_ROW_NORMALIZE=1 USE_POLAR_EXPRESS=1 torchrun t.py").overrides)
    assert found.optim.muon_row_normalize and found.optim.muon_coefficients == "polar_express"
    off = translate("MUON_ROW_NORMALIZE=0 POLAR_EXPRESS=0 FP16_EMBED_EXPORT=0 torchrun t.py")
    assert off.overrides == ["model=9l", "scale=record"] and off.unknown == []


def test_the_eleven_layer_stack_in_its_own_terms() -> None:
    line = (
        "NUM_LAYERS=11 BIGRAM_VOCAB_SIZE=1536 BIGRAM_DIM=96 XSA_LAST_N=4 ROPE_DIMS=16 LN_SCALE=1 VE_ENABLED=1 "
        "VE_DIM=64 VE_LAYERS=9,10 EMA_ENABLED=1 EMA_DECAY=0.99 SWA_ENABLED=0 QAT_LAST_FRAC=0.15 NEGATIVE_SLOPE=0.5 "
        "LATE_QAT=1 NUM_LOOPS=2 LOOP_START=4 LOOP_END=5 ENABLE_LOOPING_AT=0.5 USE_SMEARGATE=1 torchrun train_gpt.py"
    )
    found = translate(line)
    assert found.unknown == []
    tech = compose([*found.overrides, "launch.device=cuda"]).tech
    selected = "bigram ema fake_quant leaky_relu ln_scale partial_rope recurrence smear value_embed xsa"
    assert sorted(tech) == selected.split()
    assert (tech["bigram"].buckets, tech["bigram"].dim, tech["xsa"].last_n, tech["partial_rope"].dims) == (
        1536,
        96,
        4,
        16,
    )
    assert (tech["value_embed"].layers, tech["value_embed"].dim, tech["ema"].decay) == ([9, 10], 64, 0.99)
    assert tech["fake_quant"].start_fraction == 0.85 and tech["smear"].form == "keep"
    loop = tech["recurrence"]
    assert (loop.first, loop.last, loop.passes, loop.enable_at) == (4, 5, 3, 0.5)


@pytest.mark.parametrize("name", sorted(variables_of_techniques()))
def test_every_variable_of_a_technique_names_a_setting_that_exists(name: str) -> None:
    for technique, variable in variables_of_techniques()[name]:
        fields = {f.name for f in dataclasses.fields(technique_types()[technique])}
        sets = {variable.sets: ""} if isinstance(variable.sets, str) else variable.sets("1")
        assert {field for field in sets if field} <= fields


def test_a_detail_goes_to_every_selected_technique_that_lists_it(monkeypatch: pytest.MonkeyPatch) -> None:
    types = technique_types()
    for name, field in (("xsa", "last_n"), ("bigram", "dim"), ("value_embed", "dim")):
        listed = (*types[name].variables, Variable("WINDOW", field))  # type: ignore[attr-defined]
        monkeypatch.setattr(types[name], "variables", listed)
    found = translate("WINDOW=3 XSA_LAST_N=2 BIGRAM_BUCKETS=64 torchrun train_gpt.py")
    assert found.unknown == [] and found.overrides[2:] == [
        *("tech=[bigram,xsa]", "tech.xsa.last_n=2", "tech.bigram.buckets=64"),
        *("tech.bigram.dim=3", "tech.xsa.last_n=3"),
    ]


LEGAL_TTT = "EVAL_STRIDE=64 TTT_ENABLED=1 TTT_LR=0.002 TTT_EPOCHS=3 TTT_CHUNK_TOKENS=32768 TTT_FREEZE_BLOCKS=0"


def test_public_test_time_training_is_the_preset() -> None:
    """PR #549's command line; its script slides with stride 64 whether that is said or not."""
    preset = compose(["model=9l", "scale=record", "eval=ttt_sgd", "launch.device=cuda"])
    given = [f"eval.ttt.{key}" for key in ("lr=0.002", "epochs=3", "chunk_tokens=32768")]
    expected = compose(["model=9l", "scale=record", "eval=ttt_sgd", "launch.device=cuda", *given])
    for line in (LEGAL_TTT, LEGAL_TTT.removeprefix("EVAL_STRIDE=64 ")):
        found = compose([*translate(line).overrides, "launch.device=cuda"])
        assert found == expected and ttt_recipe(found) == ttt_recipe(preset)
    assert compose([*translate("TTT_ENABLED=1 EVAL_STRIDE=128").overrides]).eval.stride == 128


def test_public_low_rank_training_is_the_preset() -> None:
    line = "TTT_LORA_RANK=8 TTT_LORA_LR=0.01 TTT_CHUNK_SIZE=256 TTT_EVAL_SEQ_LEN=1024 TTT_BATCH_SIZE=64 torchrun t.py"
    found = compose([*translate(line).overrides, "launch.device=cuda"])
    preset = compose(["model=9l", "scale=record", "eval=ttt_lora", "launch.device=cuda"])
    assert found.eval.ttt.method == "lora" and ttt_recipe(found) == ttt_recipe(preset)
    assert found.eval.ttt.lora_rank == preset.eval.ttt.lora_rank and found.eval.stride == 0


def test_training_at_test_time_of_another_kind_is_not_translated() -> None:
    found = translate("TTT_ENABLED=1 torchrun train_gpt.py", declared={"TTT_ENABLED": "0", "TTT_LR": "0.002"})
    assert found.unknown == ["TTT_ENABLED=1"] and "eval.ttt.method=sgd" not in found.overrides


def test_odd_spellings() -> None:
    assert translate("XSA_LAYERS=all torchrun t.py").overrides[2:] == ["tech=[xsa]", "tech.xsa.last_n=null"]
    assert "launch.nproc=4" in translate("torchrun --nproc-per-node 4 t.py").overrides
    assert "model.mlp_hidden=0" not in translate("MLP_HIDDEN=0 x").overrides
    assert translate("SHARD_ORDER='3, 1,2' torchrun").overrides[2:] == ["data.shard_order=[3,1,2]"]
    assert translate("SHARD_ORDER= torchrun").overrides[2:] == translate("SHARD_ORDER= torchrun").unknown == []
    assert "name=a.b-c" in translate('export RUN_ID="a.b-c" MATRIX_LR=".02"; torchrun').overrides[2]
    with pytest.raises(GolfError, match="check its quotes"):
        translate('RUN_ID="x')


@pytest.mark.parametrize(
    ("line", "overrides", "unknown"),
    [
        ("export MATRIX_LR=0.03; export SEED=4; torchrun train_gpt.py", ["optim.matrix_lr=0.03", "seed=4"], []),
        ("cd x&&SEED=4 torchrun ./train_gpt.py 2>&1 | tee log.txt", ["seed=4"], []),
        ("SEED=4 python train.py > NUM_LAYERS=3.log 2> err.log", ["seed=4"], []),
        ("SEED=4 \\\r\n  MATRIX_LR=0.03 \\\n torchrun train_gpt.py", ["seed=4", "optim.matrix_lr=0.03"], []),
        ("SEED=4 torchrun train_gpt.py --lr 0.1 x=2 # why", ["seed=4"], ["--lr", "0.1", "x=2"]),
        ('$env:SEED="4"; torchrun train_gpt.py', ["seed=4"], []),
        ("TIE_EMBEDDINGS=False torchrun train_gpt.py", ["model.tie_embeddings=false"], []),
        ("LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH SEED=4 torchrun train_gpt.py", ["seed=4"], []),
        ("SEED=4\nexport SEED\ntorchrun train_gpt.py", ["seed=4"], []),
        ("set -a; SEED=4; torchrun train_gpt.py", ["seed=4"], []),
        ("export SEED=4; unset SEED; torchrun train_gpt.py", [], []),
        ("source .venv/bin/activate && torchrun --nnodes=1 train_gpt.py", [], []),
        ("source my.env && torchrun train_gpt.py", [], ["source my.env"]),
        ("torchrun --nnodes 2 --nproc_per_node 4 train_gpt.py", ["launch.nodes=2", "launch.nproc=4"], []),
        ("torchrun --nproc_per_node=gpu train_gpt.py", [], ["--nproc_per_node=gpu"]),
        ("srun --export=ALL,SEED=4 torchrun train_gpt.py", [], ["--export=ALL,SEED=4"]),
    ],
)
def test_what_a_shell_reads_is_read_as_it_does(line: str, overrides: list[str], unknown: list[str]) -> None:
    found = translate(line)
    assert found.overrides[2:] == overrides and found.unknown == unknown


@pytest.mark.parametrize("line", ["SEED=4; torchrun train_gpt.py", "SEED=4 && torchrun train_gpt.py"])
def test_a_variable_of_the_shell_alone_does_not_reach_the_script(line: str) -> None:
    found = translate(line)
    assert found.overrides[2:] == [] and found.without_effect == ["SEED=4 (not exported: write `export` before it)"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("SEED = 4 torchrun train_gpt.py", "= with spaces around it: write NAME=value"),
        ("XSA_LAYERS=7,8 torchrun train_gpt.py", "XSA_LAYERS=7,8 cannot be read"),
        ("SEED=1 torchrun train_gpt.py\nSEED=2 torchrun train_gpt.py", "starts 2 scripts: translate one"),
        ("for SEED in 1 2; do SEED=$SEED torchrun train_gpt.py; done", "Only a shell knows the value in SEED="),
        ("MATRIX_LR=${LR:-0.03} torchrun train_gpt.py", "Only a shell knows the value in MATRIX_LR="),
    ],
)
def test_what_is_no_single_command_is_refused(line: str, sentence: str) -> None:
    with pytest.raises(GolfError, match=sentence):
        translate(line)


def test_script_prints_overrides_and_names_the_rest() -> None:
    line = "MATRIX_LR=0.06 WARMDOWN_ITERS=3600 MLP_HIDDEN=992 torchrun --nproc_per_node=8 train_gpt.py"
    done = golf_command("from-env", line)
    assert done.returncode == 0 and done.stderr.startswith("defaults are those of the first baseline")
    assert done.stdout.split() == [
        *("model=9l", "scale=record", "optim.matrix_lr=0.06", "schedule.warmdown_iters=3600"),
        *("model.mlp_hidden=992", "launch.nproc=8"),
    ]
    unknown = golf_command("from-env", "MATRIX_LR=0.06 FOO=1 torchrun train_gpt.py")
    assert unknown.returncode == 1 and "FOO=1" in unknown.stderr and "FOO" not in unknown.stdout
    other = golf_command("from-env", "TTT_ENABLED=1 torchrun records/2026-03-28_Other/train_gpt.py")
    assert other.returncode == 1 and "not those of records/2026-03-28_Other/train_gpt.py" in other.stderr
    order = golf_command("from-env", "SHARD_ORDER=44,7 torchrun train_gpt.py").stdout
    assert compose([*shlex.split(order), "launch.device=cuda"]).data.shard_order == [44, 7]
    for nothing in ("", "hello world"):
        assert "got no command line" in golf_command("from-env", nothing).stderr
    wrong = golf_command("from-env", "MATRIX_LR=fast torchrun train_gpt.py")
    assert wrong.returncode == 2 and "optim.matrix_lr takes a float" in wrong.stderr


def test_swa_beside_ema_is_collected_and_not_used() -> None:
    """As in 2026-03-23_LeakyReLU_LegalTTT_ParallelMuon, whose command has both on."""
    found = translate("EMA_ENABLED=1 SWA_ENABLED=1 SWA_EVERY=50 torchrun train_gpt.py")
    assert found.overrides[2:] == ["tech=[ema]"] and found.unknown == []
    assert [sentence.partition(" (")[0] for sentence in found.without_effect] == ["SWA_ENABLED=1", "SWA_EVERY=50"]
    assert "collect this average and do not use it" in found.without_effect[0]
    compose(found.overrides)
    assert translate("EMA_ENABLED=0 SWA_ENABLED=1 torchrun train_gpt.py").overrides[2:] == ["tech=[swa]"]


def test_a_command_of_27_april_is_its_preset_but_for_order() -> None:
    """The variables of the record of 1.0611 over the defaults of its script."""
    line = (
        "TTT_LORA_RANK=80 TTT_BETA2=0.99 TTT_WEIGHT_DECAY=0.5 PHASED_TTT_PREFIX_DOCS=2500 PHASED_TTT_NUM_PHASES=3 "
        "PHASED_TTT_ENABLED=1 TTT_CHUNK_SIZE=48 torchrun train_gpt.py"
    )
    translation = translate(line, unread={"PHASED_TTT_ENABLED"})
    # Other scales give test-time training shapes of their own.
    scale = ["scale=record", "launch.nproc=1"]
    found = compose([*translation.overrides, *scale])
    preset = compose(["experiment=records/2026-04-27_caseops_lqer_9hp", *scale])
    assert found.eval.ttt == preset.eval.ttt and found.eval.documents and not translation.unknown
    switches = "TTT_O_LORA=0 TTT_WARM_START_A=0 TTT_ENABLED=1 torchrun train_gpt.py"
    ttt = compose(translate(switches).overrides).eval.ttt
    assert (ttt.lora_targets, ttt.lora_a, ttt.lora_rank) == (["q", "k", "v", "mlp", "head"], "drawn", 96)


def test_defaults_of_the_script_are_part_of_the_experiment() -> None:
    """Those of a switch that is off, and those that the command sets, are left out."""
    defaults = {
        "NUM_LAYERS": "11",
        "MATRIX_LR": "0.026",
        "EMBED_BITS": "8",
        "MLP_CLIP_SIGMAS": "10.0",
        "GATED_ATTN_ENABLED": "0",
        "GATED_ATTN_INIT_STD": "0.01",
        "SEED": "1337",
        "NEW_IDEA": "1",
    }
    translation = translate("EMBED_BITS=7 torchrun train_gpt.py", declared=defaults)
    cfg = compose(translation.overrides)
    assert (cfg.model.num_layers, cfg.optim.matrix_lr, cfg.quant.mlp.clip_k) == (11, 0.026, 10.0)
    assert cfg.quant.name == "sdclip_gptq" and cfg.quant.embed.format == "int7" and not cfg.tech
    assert translation.unknown == [] == translation.without_effect


FRONTIER = (
    "TRAIN_BATCH_TOKENS=786432 TTT_MASK=no_qv TTT_LOCAL_LR_MULT=0.75 TTT_LORA_LR=0.0001 TTT_LORA_RANK=80 "
    "TTT_BETA2=0.99 TTT_WEIGHT_DECAY=0.5 PHASED_TTT_PREFIX_DOCS=2500 PHASED_TTT_NUM_PHASES=1 TTT_CHUNK_SIZE=48 "
    "TTT_BATCH_SIZE=24 TTT_SHORT_SCORE_FIRST_ENABLED=1 TTT_SHORT_SCORE_FIRST_STEPS=256:8,2000:24 TRAIN_SEQ_LEN=3072 "
    "TRAIN_SEQ_SCHEDULE=1024@0.100,2048@0.700,3072@1.000 SEQ_CHANGE_WARMUP_STEPS=32 ASYM_LOGIT_RESCALE=1 "
    "AWQ_LITE_ENABLED=1 AWQ_LITE_BITS=8 AWQ_LITE_GROUP_TOP_K=1 AWQ_LITE_GROUP_SIZE=64 torchrun train_gpt.py"
)


def test_a_command_of_the_frontier_is_its_preset() -> None:
    """PR #2014, but for the orders that presets have otherwise."""
    translation = translate(FRONTIER)
    assert not translation.unknown
    assert [sentence.partition(" ")[0] for sentence in translation.without_effect] == ["ASYM_LOGIT_RESCALE=1"]
    scale = ["scale=record", "launch.nproc=1"]
    found = compose(["quant=sdclip_lqer_asym", *translation.overrides, *scale])
    preset = compose(["experiment=records/2026-04-30_caseops_growing_length", *scale])
    phases = dataclasses.replace(preset.eval.ttt.lora_phases, order="upstream")
    published = dataclasses.replace(preset.eval.ttt, lora_phases=phases, lora_windows="document", lora_queue="upstream")
    assert found.eval.ttt == published
    assert found.schedule.stage_warmup_steps == 32 == preset.schedule.stage_warmup_steps
    lengths = [(stage.until, stage.seq_len or found.data.train_seq_len) for stage in found.schedule.stages]
    of_preset = [(stage.until, stage.seq_len or preset.data.train_seq_len) for stage in preset.schedule.stages]
    assert lengths == of_preset and found.quant.embed.finer_columns == 64


def test_a_tilt_and_a_schedule_of_decay_are_translated_with_the_defaults_of_their_scripts() -> None:
    found = translate("NGRAM_TILT_ENABLED=1 TOKEN_ORDER=12 TTT_LORA_ALPHA=144 WD_SCHEDULE_ENABLED=1 x.py")
    cfg = compose([*found.overrides, "optim.muon_wd=0.1"])
    tilt = cfg.eval.tilt
    assert (tilt.method, tilt.strength, tilt.order, tilt.beta) == ("ngram", "constant", "stream", 2.625)
    assert (tilt.contexts, tilt.least_shares, tilt.least_counts) == ([11], [0.8], [1]) and not found.unknown
    assert cfg.schedule.weight_decay_factors == [1.0, 0.5, 1.75] and cfg.schedule.weight_decay_shares == [0.4, 0.85, 1]


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("NGRAM_TILT_ENABLED=1", ["NGRAM_TILT_ENABLED=1"]),
        ("TTT_MASK=no_mlp", ["TTT_MASK=no_mlp"]),
        ("AWQ_LITE_ENABLED=1 AWQ_LITE_BITS=7", ["AWQ_LITE_ENABLED=1", "AWQ_LITE_BITS=7"]),
        (
            "TRAIN_SEQ_SCHEDULE=512@1 TRAIN_SEQ_SCHEDULE_MODE=step",
            ["TRAIN_SEQ_SCHEDULE=512@1", "TRAIN_SEQ_SCHEDULE_MODE=step"],
        ),
        ("TTT_SHORT_SCORE_FIRST_ENABLED=1 TTT_SHORT_CHUNK_SIZE=16", ["TTT_SHORT_CHUNK_SIZE=16"]),
        ("TTT_SHORT_SCORE_FIRST_ENABLED=1", ["TTT_SHORT_SCORE_FIRST_ENABLED=1"]),
    ],
)
def test_what_the_frontier_has_and_golf_has_not_is_named(line: str, unknown: list[str]) -> None:
    found = translate(f"{line} torchrun train_gpt.py")
    assert set(unknown) <= set(found.unknown)


def test_details_of_the_frontier_under_a_switch_that_is_off_mean_nothing() -> None:
    found = translate("AWQ_LITE_ENABLED=0 AWQ_LITE_BITS=8 torchrun train_gpt.py")
    assert not found.unknown and not any("finer" in override for override in found.overrides)
    with pytest.raises(GolfError, match="correct the values"):
        translate("TRAIN_SEQ_SCHEDULE=1024@half torchrun train_gpt.py")
