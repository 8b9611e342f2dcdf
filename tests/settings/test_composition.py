"""Composing configurations: what the groups give, what a scale changes, and one sentence for every mistake."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import golf
from golf.commands.cli import main
from golf.errors import GolfError
from golf.registry import technique_types
from golf.settings import composition, hardware
from golf.settings.composition import completed, compose, refuse_mistakes
from golf.settings.config import ttt_recipe
from golf.settings.consistency import warnings
from golf.settings.dropping import OFF, droppable
from golf.settings.hardware import Hardware
from golf.settings.mistakes import flags_first
from golf.settings.names import SYNONYMS, near_to, setting_keys, technique_settings
from golf.settings.scoring_config import TTTConfig
from golf.training.techniques.base import Technique
from tests.support import ROOT, golf_main, golf_train

CPU = Hardware(gpus=0, gpu_name="", hopper=False, cpu_cores=2, cpu_bf16=False, cpu_compiler=True)
H100 = Hardware(gpus=1, gpu_name="H100", hopper=True, cpu_cores=16, cpu_bf16=True, cpu_compiler=True)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "detect", lambda: CPU)
    monkeypatch.setattr(hardware, "FINEWEB_VAL", Path("/nowhere"))


def pretend(monkeypatch: pytest.MonkeyPatch, found: Hardware, has_fineweb: bool) -> None:
    monkeypatch.setattr(hardware, "detect", lambda: found)
    monkeypatch.setattr(hardware, "FINEWEB_VAL", ROOT / "README.md" if has_fineweb else Path("/nowhere"))


@pytest.mark.parametrize(
    ("found", "has_fineweb", "expected"),
    [
        (CPU, False, ("laptop", "4l", "pydocs", "cpu", "fp32", "fp32", "off")),
        (dataclasses.replace(CPU, cpu_bf16=True), True, ("laptop", "4l", "pydocs", "cpu", "bf16", "fp32", "blocks")),
        (H100, False, ("single_gpu", "9l", "pydocs", "cuda", "bf16", "bf16", "full")),
        (H100, True, ("single_gpu", "9l", "fineweb_sp1024", "cuda", "bf16", "bf16", "full")),
        (dataclasses.replace(H100, gpus=8), True, ("record", "9l", "fineweb_sp1024", "cuda", "bf16", "bf16", "full")),
        (dataclasses.replace(H100, gpus=8), False, ("single_gpu", "9l", "pydocs", "cuda", "bf16", "bf16", "full")),
    ],
)
def test_what_is_chosen_when_nothing_is_said(
    found: Hardware, has_fineweb: bool, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, found, has_fineweb)
    c = compose()
    chosen = (c.scale.name, c.model.name, c.data.name, c.launch.device, c.model.compute_dtype, c.eval.dtype)
    assert (*chosen, c.launch.compile) == expected


def test_a_long_cpu_run_compiles_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, CPU, False)
    assert compose(["budget.train_seconds=600"]).launch.compile == "blocks"
    # Without a clock the steps tell how long a run is.
    assert compose(["budget.train_seconds=0"]).launch.compile == "blocks"
    assert compose(["budget.train_seconds=0", "schedule.iterations=20"]).launch.compile == "off"
    assert compose(["budget.train_seconds=600", "schedule.iterations=20"]).launch.compile == "off"
    pretend(monkeypatch, dataclasses.replace(CPU, cpu_compiler=False), False)
    assert compose(["budget.train_seconds=600"]).launch.compile == "off"


def test_a_laptop_shrinks_test_time_training_and_nothing_else_of_the_evaluation() -> None:
    def shrunk(*overrides: str) -> tuple[object, ...]:
        ttt = compose(["experiment=records/2026-04-27_caseops_lqer_9hp", *overrides]).eval.ttt
        return ttt.lora_rank, ttt.lora_alpha, ttt.batch_seqs, ttt.chunk_tokens, ttt.lora_phases.documents

    assert shrunk("scale=record", "launch.nproc=1") == (80, 144, 64, 48, 2500)
    assert shrunk("scale=laptop") == (18, 32, 16, 128, 48)
    assert shrunk("scale=laptop", "eval.ttt.lora_rank=5")[0] == 5
    plain = compose(["scale=laptop"])
    assert plain.eval.ttt == TTTConfig() and plain.budget.eval_seconds == 120


def test_long_runs_without_a_clock_and_a_trellis_for_another_codec_are_named() -> None:
    assert not any("no clock" in sentence for sentence in warnings(compose(["scale=laptop"])))
    (sentence,) = warnings(compose(["scale=laptop", "budget.train_seconds=0"]))
    assert "it makes all 20,000 steps" in sentence
    record = compose(["scale=laptop", "experiment=records/2026-04-18_caseops_taper", "quant=trellis"])
    assert any("this run has quant.codec=brotli" in sentence for sentence in warnings(record))
    assert warnings(compose(["scale=laptop", "quant=trellis"])) == []


@pytest.mark.parametrize("far", ["0.1", "0.004"])
def test_a_rate_far_from_that_of_the_scale_is_named(far: str, capsys: pytest.CaptureFixture[str]) -> None:
    (sentence,) = warnings(compose(["scale=laptop", f"optim.matrix_lr={far}"]))
    assert sentence.startswith(f"optim.matrix_lr={far} is more than a factor of two from ")
    assert main(["plan", "scale=laptop", "model=4l", f"optim.matrix_lr={far}"]) == 0
    assert f"note: {sentence}" in capsys.readouterr().out
    # The rate of another rule of steps, of a tuned scale as it is, or at a scale that was not tuned.
    assert warnings(compose(["scale=laptop", "tech=[adamuon]", f"optim.matrix_lr={far}"])) == []
    assert warnings(compose(["scale=laptop"])) == warnings(compose(["scale=record", f"optim.matrix_lr={far}"])) == []


def test_what_is_said_is_never_changed(machine: None) -> None:
    cfg = compose(
        ["launch.device=cuda", "model.compute_dtype=bf16", "launch.compile=blocks", "scale=record", "model=11l"]
    )
    assert (cfg.launch.device, cfg.model.compute_dtype, cfg.launch.compile) == ("cuda", "bf16", "blocks")
    assert (cfg.launch.nproc, cfg.model.num_layers) == (8, 11)


def test_experiments_at_record_scale_are_the_public_runs(machine: None) -> None:
    base = compose(["experiment=naive_baseline", "scale=record"])
    assert (base.data.train_batch_tokens, base.data.train_seq_len, base.budget.train_seconds) == (524_288, 1024, 600)
    assert (base.optim.matrix_lr, base.optim.scalar_lr, base.optim.tied_embed_lr) == (0.04, 0.04, 0.05)
    assert (base.schedule.warmdown_iters, base.schedule.iterations, base.quant.codec) == (1200, 20_000, "zlib")
    lower = compose(["experiment=lower_lr", "scale=record"]).optim
    assert (lower.matrix_lr, lower.scalar_lr, lower.tied_embed_lr) == (0.02, 0.02, 0.03)
    wd = compose(["experiment=fp16_embed_wd3600", "scale=record"])
    assert (wd.model.mlp_hidden, wd.optim.matrix_lr, wd.schedule.warmdown_iters, wd.quant.embed.format) == (
        992,
        0.06,
        3600,
        "fp16",
    )


def test_laptop_scale_shrinks_an_experiment_in_proportion(machine: None) -> None:
    base, wd = (compose([f"experiment={name}", "scale=laptop"]) for name in ("naive_baseline", "fp16_embed_wd3600"))
    assert base.model.num_layers == wd.model.num_layers == 9
    assert base.budget.artifact_bytes == 1_000_000 and base.budget.train_seconds == 120
    assert wd.model.mlp_hidden == round(992 / 512 * wd.model.model_dim)
    assert (wd.schedule.warmdown_iters, base.schedule.warmdown_iters) == (432, round(144 * base.scale.warmdown_ratio))
    assert (wd.optim.matrix_lr, wd.quant.embed.format) == (0.06, "fp16")
    assert base.optim.matrix_lr == pytest.approx(0.04 * base.scale.rate_ratio)


def test_a_number_on_the_command_line_is_not_scaled(machine: None) -> None:
    cfg = compose(["scale=laptop", "schedule.warmdown_iters=77", "optim.matrix_lr=0.02"])
    assert (cfg.schedule.warmdown_iters, cfg.optim.matrix_lr) == (77, 0.02)


def test_a_run_without_a_clock_has_none_at_any_scale(machine: None) -> None:
    for scale in ("laptop", "single_gpu", "record"):
        assert compose([f"scale={scale}", "budget=unlimited"]).budget.train_seconds == 0
    assert compose(["scale=laptop"]).budget.train_seconds == 120
    assert compose(["scale=laptop", "budget=unlimited", "budget.train_seconds=7"]).budget.train_seconds == 7


def test_what_test_time_training_leaves_open_is_its_recipes(machine: None) -> None:
    sgd, lora = (ttt_recipe(compose([f"eval=ttt_{method}", "scale=record"]))[:4] for method in ("sgd", "lora"))
    assert sgd == (0.002, 32_768, 32, 1024) and lora == (0.01, 256, 64, 1024)
    assert ttt_recipe(compose(["eval=ttt_lora", "scale=laptop"]))[:4] == (0.01, 64, 64, 256)
    given = ["eval.ttt.lr=0.5", "eval.ttt.chunk_tokens=32", "eval.ttt.batch_seqs=3", "eval.ttt.seq_len=128"]
    assert ttt_recipe(compose(["eval=ttt_lora", "scale=record", *given]))[:4] == (0.5, 32, 3, 128)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*/*.yaml")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_option_composes_and_says_what_it_is(path: Path, machine: None) -> None:
    text = path.read_text()
    assert text.lstrip().startswith("#"), "begin with a comment that says what it is"
    own = ["data.path=x", "data.tokenizer_path=x", "data.vocab_size=9"]
    needs = {"own": own, "untied_mlps": ["tech=[untied_mlps,recurrence]"]}.get(path.stem, [])
    cfg = compose([f"{path.parent.name}={path.stem}", *needs])
    values = yaml.safe_load(text) or {}  # only a comment: the defaults of the schema
    name = values.get("name", path.stem)
    assert name in (path.stem, cfg.name) or path.parent.name == "data"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["optim.matrix_lrr=1"], r"There is no setting optim\.matrix_lrr; did you mean matrix_lr\?"),
        (["+optim.foo=1"], r"There is no setting optim\.foo"),
        (["+foo=1"], r"There is no setting foo"),
        (["sed=1"], r"There is no setting sed; did you mean seed\?"),
        (["modle=9l"], r"There is no setting modle; did you mean model\?"),
        (["model=12l"], r"model=12l does not exist; did you mean 11l\?"),
        (["tech=[zzz]"], r"There is no technique zzz; known are adam_matrices, adamuon"),
        (["tech=[xas]"], r"There is no technique xas; did you mean xsa\?"),
        (["tech=[xsa]", "tech.xsa.layers=3"], r"There is no setting tech\.xsa\.layers; known are last_n"),
        (["quant=INT8"], r"quant=INT8 does not exist; did you mean int8 or "),
        (["tech=[xsa]", "tech.xsa.last=3"], r"There is no setting tech\.xsa\.last; did you mean last_n\?"),
        (["tech=[xsa]", "tech.bigram.dim=3"], r"Technique bigram is not selected: add it with \+tech=bigram"),
        (["+tech.foo.bar=3"], r"There is no technique foo"),
        (["tech=[xsa]", "tech.xsa.last_n=many"], r"tech\.xsa\.last_n takes an integer, not 'many'"),
        (["name=.."], r"name=\.\. names a folder: use letters, digits and \. _ \+ - only, and no dot first"),
        (["tech=[ema,swa]"], r"tech ema and swa exclude each other: drop one of them"),
        (["drop=[xsa]"], r"drop=\[xsa\]: it is not switched on\. On are gqa, momentum_warmup"),
        (["tech=[partial_rope]", "tech.partial_rope.dims=5"], r"dims=5 has to be even and at most the head's 28"),
        (["tech=[recurrence]", "tech.recurrence.last=9"], r"runs layers 0 to 9, but there are 0 to 3"),
        (["tech=[value_embed]", "tech.value_embed.layers=[7]"], r"names layer 7, but the model has 4 layers"),
        (["model.attention=fa3"], r"model\.attention=fa3 needs a GPU and bf16 throughout"),
        (
            ["experiment=nope"],
            r"experiment=nope does not exist; known are caseops_long_trellis, caseops_trellis_cap",
        ),
        (["scale=huge"], r"scale=huge does not exist"),
        (["model.num_layers=abc"], r"model\.num_layers takes an integer, not 'abc'"),
        (["model.num_layers=4.5"], r"model\.num_layers takes an integer, not '4\.5'"),
        (["optim.matrix_lr=fast"], r"optim\.matrix_lr takes a float, not 'fast'"),
        (["model.num_heads=5"], r"model\.num_heads=5 does not divide model\.model_dim=112"),
        (["model.num_kv_heads=3"], r"model\.num_kv_heads=3 does not divide model\.num_heads=4"),
        (["model.model_dim=12"], r"heads are 3 wide .* choose an even width"),
        (["model.num_layers=0"], r"model\.num_layers=0 has to be at least 1"),
        (["data.vocab_size=70000"], r"is over 65536"),
        (["data.train_batch_tokens=8000"], r"not a multiple of .* = 256: the nearest that is: 7936"),
        (["launch.nproc=3"], r"launch\.nproc=3 does not divide data\.micro_batches=1"),
        (["eval.val_batch_tokens=128"], r"set it to 256 or more"),
        (["eval.stride=256"], r"eval\.stride=256 has to be below the sequence length of 256: choose 1 to 255"),
        (["eval.stride=-1"], r"eval\.stride=-1 has to be at least 0"),
        (["eval.stride_batch_seqs=0"], r"eval\.stride_batch_seqs=0 has to be at least 1"),
        (["eval.ttt.typo=1"], r"There is no setting eval\.ttt\.typo; known are method, lr"),
        (["eval.ttt.methd=sgd"], r"There is no setting eval\.ttt\.methd; did you mean method\?"),
        (["+eval.ttt.rank=1"], r"There is no setting eval\.ttt\.rank; did you mean lora_rank\?"),
        (["eval.ttt.method=adam"], r"eval\.ttt\.method=adam is not known: choose one of off, sgd, lora"),
        (["eval.ttt.lr=high"], r"eval\.ttt\.lr takes a float, not 'high'"),
        (["eval=ttt_sgd", "eval.ttt.lr=0"], r"eval\.ttt\.lr=0\.0 has to be above 0"),
        (["eval=ttt_sgd", "eval.ttt.chunk_tokens=1000"], r"a multiple of the sequence length, 256: .*: 1024"),
        (["eval=ttt_sgd", "eval.stride=48"], r"not a multiple of eval\.stride, 48: the nearest that is: 32784"),
        (["eval=ttt_sgd", "eval.ttt.epochs=0"], r"eval\.ttt\.epochs=0 has to be at least 1"),
        (["eval=ttt_sgd", "eval.ttt.momentum=1"], r"eval\.ttt\.momentum=1\.0 has to be at least 0 and below 1"),
        (["eval=ttt_sgd", "eval.ttt.grad_clip=-1"], r"eval\.ttt\.grad_clip=-1\.0 has to be at least 0"),
        (["eval=ttt_sgd", "model=4l", "eval.ttt.freeze_blocks=5"], r"not among the model's 4 blocks"),
        (["eval=ttt_lora", "eval.ttt.chunk_tokens=512"], r"does not fit into windows of 256 tokens"),
        (["eval=ttt_lora", "eval.ttt.lora_chunks=[[256,8],[256,4]]"], r"lengths ascending, chunks of 1 to 256"),
        (["eval=ttt_lora", "eval.ttt.lora_chunks=[[256]]"], r"has to be pairs of a length and the tokens"),
        (["eval=ttt_lora", "eval.ttt.batch_seqs=0"], r"eval\.ttt\.batch_seqs=0 has to be at least 1"),
        (["schedule.weight_decay_factors=[1,2]"], r"do not go together: give ascending shares"),
        (["quant=trellis", "quant.mlp.finer_columns=64"], r"needs plain GPTQ and columns that are the layer's inputs"),
        (["optim.muon_coefficients=fixed"], r"choose one of quintic, polar_express"),
        (
            ["optim.muon_coefficients=polar_express", "optim.muon_backend_steps=6"],
            r"for 5 iterations: set optim\.muon_backend_steps=5 or fewer",
        ),
        (["schedule.muon_wd_taper_final=0.5"], r"lets a weight decay fall that is 0: set optim\.muon_wd"),
        (["schedule.muon_wd_taper_start=1"], r"muon_wd_taper_start=1\.0 has to be at least 0 and below 1"),
        (["tech=[bigram]", "tech.bigram.hash=sum"], r"tech\.bigram\.hash=sum is not known: choose one of xor, linear"),
        (["tech=[bigram]", "tech.bigram.hash=linear", "tech.bigram.order=3"], r"hashes pairs: leave .*order=2"),
        (["tech=[bigram]", "tech.bigram.add_pairs=true"], r"adds pairs to triples: set tech\.bigram\.order=3"),
        (["tech=[overtone_init]", "tech.overtone_init.exponent=0"], r"exponent=0\.0 has to be above 0"),
        (["tech=[gated_attention]", "tech.gated_attention.window=999"], r"window=999 is wider than the model's 112"),
        (["tech=[gated_attention]", "tech.gated_attention.multiplier=0"], r"multiplier=0\.0 has to be above 0"),
        (
            ["tech=[gated_attention,fused_qkv]", "tech.gated_attention.reads=queries"],
            r"which fused_qkv changes: use reads=input or drop fused_qkv",
        ),
        (["tech=[smear]", "tech.smear.form=add", "tech.smear.window=999"], r"window=999 is wider than the model's 112"),
        (
            ["tech=[bigram]", "eval=by_document"],
            r"a selected technique mixes tokens across them: set tech\.bigram\.mask_bos=true",
        ),
        (["eval=ttt_sgd_tilt", "eval.documents=true"], r"hints in earlier documents.*: set eval\.stride=0"),
        (["quant.mlp.clip_importance=0.1"], r"follows the Hessian of GPTQ: set quant\.mlp\.rounding=gptq"),
        (["quant.prune.weights=1"], r"quant\.prune\.weights=1\.0 has to be at least 0 and below 1"),
        (["seed=-1"], r"seed=-1 has to be at least 0"),
        (["name=a/b"], r"name=a/b names a folder"),
        (["quant.codec=gzip"], r"quant\.codec=gzip is not known: choose one of zlib, zstd, lzma"),
        (["quant.attn.format=int9"], r"choose one of int8, int7, int6, int5, int4, ternary, fp16"),
        (["launch.compile=yes"], r"choose one of auto, off, blocks, full"),
        (["model.compute_dtype=fp8"], r"choose one of auto, bf16, fp32"),
        (["quant.mlp.clip_quantile=1.5"], r"quant\.mlp\.clip_quantile=1\.5 has to be above 0 and at most 1"),
        (["budget.train_seconds=-1"], r"budget\.train_seconds=-1\.0 has to be at least 0"),
        (["schedule.iterations=0"], r"schedule\.iterations=0 has to be at least 1"),
        (["schedule.warmdown_fraction=20"], r"schedule\.warmdown_fraction=20\.0 has to be at least 0 and at most 1"),
        (["data=own"], r"`golf data tokenize` prints all three"),
        (["seed=[1"], r"close every bracket"),
        (["tech=[1,2]"], r"tech lists names, not numbers"),
        (["foo"], r"'foo' has no '=': write settings as key=value without spaces, as in optim\.matrix_lr=0\.02"),
        (["optim.matrix_lr", "0.03"], r"'optim\.matrix_lr' has no '=': .* as in optim\.matrix_lr=VALUE"),
        (["optim.matrix_lr 0.03"], r"'optim\.matrix_lr 0\.03' has no '=': .* as in optim\.matrix_lr=0\.03"),
        (["matrix_lr=0.03"], r"There is no setting matrix_lr; did you mean optim\.matrix_lr\?"),
        (["seed=1,2"], r"--multirun"),
        (["model=null"], r"model=null: a run needs one of model's options; choose from 11l"),
        *((["tech=null"], r"tech=null: write tech=\[\] for no"), (["~tech=xsa"], r"~tech=xsa: write tech=\[\] for no")),
        (["~model"], r"~model: a run needs one of model's options; choose from 11l"),
        (["optim.matrix_lr=null"], r"optim\.matrix_lr cannot be null: give it a value, or leave optim\.matrix_lr out"),
        (["seed=null"], r"seed cannot be null"),
        (["tech=[ema]", "tech.ema.decay=null"], r"tech\.ema\.decay cannot be null"),
        (
            ["hydra.run.dir=x"],
            r"hydra\.run\.dir=x has no effect: GOLF_RUNS=FOLDER before the command chooses the folder",
        ),
        (["+hydra.sweep.dir=x"], r"hydra\.sweep\.dir=x has no effect"),
        (["hydra/launcher=ray"], r"hydra/launcher=ray is not supported: .* launch\.jobs=2 .* golf submit"),
    ],
)
def test_mistakes_end_in_one_sentence(overrides: list[str], sentence: str, machine: None) -> None:
    with pytest.raises(GolfError, match=sentence) as caught:
        compose(["scale=laptop", *overrides] if not overrides[0].startswith("scale") else overrides)
    assert "\n" not in str(caught.value)


def test_own_text_that_is_not_named_is_told_how_before_torch_is_there() -> None:
    with pytest.raises(GolfError, match="`golf data tokenize` prints all three"):
        refuse_mistakes(["scale=laptop", "data=own"])


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (["--optim.matrix_lr=0.03"], "optim.matrix_lr=0.03"),
        (["--matrix-lr", "0.03"], "optim.matrix_lr=0.03"),
        (["--matrix_lr", "seed=3"], "optim.matrix_lr=VALUE"),
        (["--seed", "-m"], "seed=VALUE"),
        (["seed=3", "--foo"], "optim.matrix_lr=0.02"),
    ],
)
def test_flags_that_are_settings_end_in_one_sentence(words: list[str], example: str) -> None:
    done = golf_main(*words)
    assert done.returncode == 2 and done.stderr.startswith("error: There is no flag --")
    assert done.stderr.endswith(f"key=value without dashes, as in {example}.\n") and done.stderr.count("\n") == 1


def test_hydras_own_flags_are_flags() -> None:
    flags, overrides = flags_first(["model=9l", "-m", "--multi", "--cfg", "job", "-p", "optim", "--info", "seed=1"])
    assert flags[:-1] == ["-m", "--multi", "--cfg", "job", "-p", "optim"] and flags[-1] == "--info=all"
    assert overrides == ["model=9l", "seed=1"]


@pytest.mark.slow
def test_flags_of_other_frameworks_and_the_version() -> None:
    # As a process, because Hydra prints through logging, which other tests have set up in this one.
    done = golf_train("--info")
    assert done.returncode == 0 and "Installed Hydra Plugins" in done.stdout and done.stderr == ""
    swept = golf_main("-m", "--cfg", "job", "seed=1,2")
    assert swept.returncode == 2
    assert swept.stderr == "error: --cfg and --info show one run: leave out -m and lists of values.\n"
    version = golf_main("--version").stdout
    assert version.startswith(f"golf {golf.__version__}") and re.fullmatch(r"\d+\.\d+\.\d+", golf.__version__)


def test_other_names_name_settings_that_exist() -> None:
    assert set(SYNONYMS.values()) <= set(setting_keys()) and not set(SYNONYMS) & set(setting_keys())


def test_the_launcher_of_joblib_is_golfs_own() -> None:
    asked = ["scale=laptop", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert completed(asked) == ["scale=laptop", "hydra/launcher=golf", "launch.jobs=2"]
    assert completed([*asked[:2], "+hydra.launcher.n_jobs=-1"]) == ["scale=laptop", "hydra/launcher=golf"]


def test_an_experiment_may_have_the_plus_of_a_sweep(machine: None) -> None:
    assert compose(["+experiment=lower_lr"]) == compose(["experiment=lower_lr"]) != compose([])


@pytest.mark.parametrize(
    ("words", "first_line"),
    [
        (["experiment=lower_lr", "--cfg", "job", "-p", "name"], "lower_lr"),
        (["--cfg=job", "-p", "name", "experiment=lower_lr"], "lower_lr"),
    ],
)
def test_flags_may_stand_anywhere(words: list[str], first_line: str) -> None:
    done = golf_main(*words)
    assert done.returncode == 0 and done.stdout.splitlines()[0] == first_line, done


@pytest.mark.slow
def test_hydras_own_help_is_printed() -> None:
    done = golf_train("seed=3", "--hydra-help")
    assert done.returncode == 0 and done.stdout.startswith("Hydra (1.3.8)")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["optim.matrix_lrr=1"], "There is no setting optim.matrix_lrr; did you mean matrix_lr?"),
        (["matrix_lrr=0.03"], "There is no setting matrix_lrr; did you mean optim.matrix_lr"),
        (["quant.matrix_lr=0.03"], "There is no setting quant.matrix_lr; did you mean optim.matrix_lr?"),
        (["optim.lr=1"], "did you mean optim.matrix_lr or optim.scalar_lr or optim.tied_embed_lr?"),
        (["lora_rnk=3"], "There is no setting lora_rnk; did you mean eval.ttt.lora_rank"),
        (["tech=[xsa]", "tech.xsa.last=3"], "There is no setting tech.xsa.last; did you mean last_n?"),
        (["tech.bigram.dim=3"], "Technique bigram is not selected: add it with +tech=bigram."),
        (["tech=[xas]"], "There is no technique xas; did you mean xsa?"),
        (["model=12l"], "model=12l does not exist; did you mean 11l?"),
        (["model=null"], "model=null: a run needs one of model's options; choose from 11l, 4l, 8l, 9l."),
        (["-m", "optim.matrix_lrr=0.02,0.04"], "There is no setting optim.matrix_lrr"),
        (["+sweep=lower_lrr"], "sweep=lower_lrr does not exist; did you mean lower_lr?"),
        (["quant.codec=gzip"], "quant.codec=gzip is not known: choose one of"),
        (["model.num_layers=abc"], "model.num_layers takes an integer, not 'abc'."),
        (["model.tie_embeddings=maybe"], "model.tie_embeddings takes true or false, not 'maybe'."),
        (["-m", "seed=range(1,3"], "seed=range(1,3 cannot be read: close every bracket and quote"),
        (["experiment="], "experiment= does not exist; known are "),
        (["~model.num_layers"], "~model.num_layers takes nothing away: leave the setting out"),
        (["model@x=11l"], "model@ puts a group where no run reads it: write model=OPTION."),
        (["cluster.partition=h100"], "There is no setting cluster.partition; did you mean cluster.sbatch?"),
        (["a=b"], "There is no setting a; known are "),
        (["optim.matrix_lr", "=", "0.03"], "as in optim.matrix_lr=0.03."),
        (["optim.matrix_lr", "=0.03"], "as in optim.matrix_lr=0.03."),
        (["seed", "4", "model=9l"], "as in seed=4."),
        (["steps=10"], "did you mean schedule.iterations or quant.retrain.steps or quant.tune.steps?"),
        (["MATRIX_LR=0.06"], "There is no setting MATRIX_LR; did you mean optim.matrix_lr"),
        (["lr=0.1"], "There is no setting lr; did you mean optim.matrix_lr or eval.ttt.lr"),
        (["launch.val_every=3"], "There is no setting launch.val_every; did you mean eval.val_loss_every"),
        (["eval.every=3"], "There is no setting eval.every; did you mean eval.val_loss_every"),
        (["tech=[xsa]", "+tech=lawa"], "tech=[xsa] +tech=lawa: write all techniques in one list"),
        (["+tech=xsa", "+tech=lawa"], "+tech=xsa +tech=lawa: write all techniques in one list"),
        (["+model=9l"], "model has an option already: write model=OPTION without +."),
        (["seed=1", "--cfg", "-m"], "--cfg is followed by a word, such as `--cfg job`"),
    ],
)
def test_a_typo_is_answered_without_torch(words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow() -> None:
        raise AssertionError("this imports torch")

    monkeypatch.setattr(hardware, "_this_machine", slow)
    monkeypatch.setattr(composition, "technique_types", slow)
    done = golf_main(*words)
    assert done.returncode == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("command", [["-m", "golf.train"], ["-m", "golf.commands.cli", "plan"]])
def test_a_typo_leaves_torch_alone(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command, "matrix_lr=0.03"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2 and "did you mean optim.matrix_lr?" in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "hydra" in imported and not {"torch", "numpy", "scipy"} & imported


def test_what_is_no_mistake_passes(machine: None) -> None:
    for words in (
        ["-m", "optim.matrix_lr=0.02,0.04", "seed=range(1,4)", "tech=[xsa],[]"],
        ["-m", "optim.matrix_lr=interval(0.01,0.1)", "model=glob(*)"],
        ["+sweep=leave_one_out", "experiment=gold6_11l", "tech.xsa.last_n=2", "drop=[ema]"],
        ["--config-dir", "/nowhere", "model=mine"],
        ["eval.ttt.lr=null", "model.mlp_hidden=null", "hydra.verbose=true"],
    ):
        refuse_mistakes(words, several="-m" in words)


def test_a_string_of_overrides_is_no_list() -> None:
    with pytest.raises(GolfError, match=r"takes a list of overrides: write compose\(\['model=9l'\]\)"):
        composition.compose("model=9l")


def test_settings_are_read_from_the_files_of_techniques() -> None:
    """Reading the text has to give what importing gives."""
    imported = {name: tuple(f.name for f in dataclasses.fields(kind)) for name, kind in technique_types().items()}
    assert technique_settings() == imported


def test_no_setting_hides_a_seam() -> None:
    """A field called like a method of `Technique` would be called in its place."""
    seams = {name for name, value in vars(Technique).items() if callable(value)}
    assert [
        (name, f.name) for name, kind in technique_types().items() for f in dataclasses.fields(kind) if f.name in seams
    ] == []


def test_importing_golf_imports_nothing_heavy() -> None:
    code = "import golf, sys; print(sorted({'torch', 'hydra', 'numpy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_settings_of_a_technique_that_is_not_selected_are_no_half_technique(machine: None) -> None:
    """An experiment sets tech.bigram.buckets; the command line then selects other techniques."""
    cfg = compose(["experiment=gold6_11l", "tech=[smear]", "scale=laptop"])
    assert list(cfg.tech) == ["smear"]
    assert cfg.tech == compose(["model=11l", "tech=[smear]", "scale=laptop"]).tech


def test_a_technique_is_added_to_an_experiment_and_taken_out_of_it(machine: None) -> None:
    base = compose(["experiment=gold6_11l"])
    more = compose(["experiment=gold6_11l", "+tech=lawa", "drop=[ema]"])
    assert set(more.tech) == {*base.tech, "lawa"} - {"ema"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OFF))
def test_plain_settings_are_dropped_by_name(name: str, machine: None) -> None:
    on = {
        "fp16_embed": ["experiment=fp16_embed_wd3600"],
        "loader": ["data.loader=coprime"],
        "documents": ["data.loader=packed", "model.within_documents=true", "eval.documents=true"],
        "shard_order": ["data.shard_order=[1,0]"],
        "ttt": ["eval=ttt_lora"],
        "tilt": ["eval=ttt_sgd_tilt"],
        "short_chunks": ["eval=ttt_lora", "eval.ttt.lora_chunks=[[256,8]]"],
        "rotation": ["quant.mlp.rotation=hadamard"],
        "pruning": ["quant=gptq_own_text"],
        "lqer": ["quant=int4_lqer"],
        "sensitive": ["quant=gptq_int6", "quant.mlp.format=int5", "quant.sensitive.top=3"],
        "decay_taper": ["optim.muon_wd=0.1", "schedule.muon_wd_taper_final=0.5"],
        "decay_factors": ["schedule.weight_decay_factors=[1,2]", "schedule.weight_decay_shares=[0.4,1]"],
        "row_normalize": ["optim.muon_row_normalize=true", "optim.muon_row_eps=1e-7"],
        "polar_express": ["optim.muon_coefficients=polar_express"],
        "momentum_dtype": ["optim.muon_momentum_dtype=bf16"],
        "column_steps": ["quant=trellis"],
        "finer_columns": ["quant=sdclip_gptq", "quant.embed.finer_columns=64"],
        "clip_sensitivity": ["quant=sdclip_gptq", "quant.clip_sensitivity=0.15"],
        "step_sensitivity": ["quant=trellis_sensitive"],
        "clip_importance": ["quant=sdclip_gptq", "quant.mlp.clip_importance=0.175"],
        "fp16_control": ["quant.control_format=fp16"],
        "drift": ["quant=sdclip_gptq", "quant.gptq.drift=true"],
        "tuning": ["quant.tune.steps=20"],
        "retraining": ["quant=trellis_retrained"],
        "moment_dtype": ["optim.adam_moment_dtype=fp32"],
    }.get(name, ["experiment=pr593_11l"])
    cfg = compose([*on, f"drop=[{name}]"])
    assert name in droppable(compose(on)) and name not in droppable(cfg)


def test_a_list_of_techniques_may_extend_a_set(machine: None) -> None:
    extended = compose(["scale=laptop", "tech=[sets/march,leaky_relu]"])
    assert extended.tech == compose(["scale=laptop", f"tech=[{','.join(extended.tech)}]"]).tech
    assert set(extended.tech) >= {"leaky_relu", "value_embed", "xsa"} and "sets" not in extended.tech
    # A list on the command line is the whole list, also over an experiment that extends a set.
    assert list(compose(["scale=laptop", "experiment=gold6_11l", "tech=[ema]"]).tech) == ["ema"]


@pytest.mark.parametrize(
    "overrides, said",
    [
        (["experimnet=naive_baseline"], "did you mean experiment?"),
        (["expirement=naive_baseline"], "did you mean experiment?"),
        (["idaes=x"], "did you mean ideas?"),
        (["experiment=1559"], "experiment=1559 does not exist; known are "),
        (["experiment=593"], "experiment=593 does not exist; did you mean pr593_11l?"),
        (["experiment=LOWER_LR"], "did you mean lower_lr or records/2026-03-18_lower_lr?"),
        (["experiment=2026-04-27"], "did you mean records/2026-04-27"),
        (["quant=int6"], "did you mean gptq_int6 or int6_context or int6_int8_packed?"),
        (["device=cpu"], "did you mean launch.device?"),
    ],
)
def test_a_suggestion_is_near_or_not_made(overrides: list[str], said: str) -> None:
    done = golf_main(*overrides)
    assert done.returncode == 2 and said in done.stderr and "idea_code" not in done.stderr, done.stderr


def test_words_that_are_far_from_all_get_no_suggestion() -> None:
    assert near_to("exp", ["model", "experiment"]) == ["experiment"] and near_to("ex", ["experiment"]) == []
    assert near_to("sched", ["seed", "schedule"]) == ["schedule"]
    assert near_to("dropout", ["drop", "data"]) == [] and near_to("", ["a"]) == []
    assert near_to("rank", ["lora_rank", "ranks_of"]) == ["lora_rank"]
