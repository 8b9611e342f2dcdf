"""Record folders of real runs: all files, and all reasons for a refusal."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from golf import train_gpt
from golf.challenge import SUBMISSION_NUMBERS, SUBMISSION_TEXTS
from golf.commands import cli
from golf.errors import GolfError
from golf.field.folder_audit import audit
from golf.lab.corpora.own_text import OwnDataset
from golf.launch.launcher import train_and_score
from golf.run.folder import RunFolder
from golf.run.result import read_result
from golf.settings.composition import rules_named
from golf.settings.config import Config
from golf.submission.readme import in_a_sentence
from golf.submission.record_folder import problems
from golf.submission.runs import gather
from golf.submission.script.bundle import Bundle
from golf.training.model.attention import choose_kernel
from tests.support import FinishedRun, compose, tiny_overrides

# The proposal beyond the public runs, and an artifact whose weights were retrained while it was rounded, then tuned.
OTHERS = {
    "proposal": "experiment=caseops_long_trellis model.num_layers=6 tech.parallel_lanes.first=4 "
    "tech.recurrence.first=2 tech.recurrence.last=3 data.train_seq_len=256 "
    "data.train_batch_tokens=2048 eval.val_batch_tokens=2048 "
    "eval.ttt.batch_seqs=1 eval.ttt.lora_phases.documents=4",
    # The seconds that count are more than those of the scores: unpacking, and writing the text for calibration.
    "whole_clock": "rules=strict quant=gptq_own_text",
    "tuned": "quant=trellis_retrained quant.retrain.steps=2 quant.tune.steps=3 quant.calibration.tokens=2048",
}
WHO = ["--author", "A. Golfer", "--github-id", "agolfer"]


@pytest.fixture(scope="module")
def variant(tiny: OwnDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of one variant with two seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOLF_RUNS", str(tmp_path_factory.mktemp("runs")))
        for seed in (1, 2):
            _, folder = train_and_score(
                compose([*tiny_overrides(tiny), "rules.code_bytes=exact", "tech=[xsa,ortho_init]", f"seed={seed}"])
            )
    return folder.path.parent


@pytest.mark.slow
def test_a_folder_with_everything_in_it(
    variant: Path, tiny: OwnDataset, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    target = tmp_path / "record"
    options = ["--wrap", "--reference", "5.0", "--text", "own", "--blurb", "XSA on a tiny model.", "--out", str(target)]
    assert cli.main(["export", str(variant), *WHO, *options]) == 0
    # what the audit will fault is said at once: the tiny text is not FineWeb
    assert "warning: golf audit faults it: " in (shown := capsys.readouterr().out) and "bytes of text" in shown
    names = {p.name for p in target.iterdir()}
    assert names >= {"train_gpt.py", "train_gpt_readable.py", "submission.json", "README.md", "requirements.txt"}
    assert names >= {"train_seed1.log", "train_seed2.log", "tiny_320_bpe.model"}
    values = json.loads((target / "submission.json").read_text())
    runs = gather([variant])
    size = (target / "train_gpt.py").stat().st_size
    assert all(key in values for key in (*SUBMISSION_TEXTS, *SUBMISSION_NUMBERS))
    assert values["bytes_code"] == size == runs[0].result.code_bytes
    assert values["bytes_total"] == max(run.artifact_bytes for run in runs) + size
    assert values["val_bpb"] == pytest.approx(sum(run.score.val_bpb for run in runs) / 2)
    assert values["seeds"] == [1, 2] and values["seed_results"]["1"]["steps"] == 6
    assert values["verdict"] == "better" and values["track"] == "non_record_16mb"
    text = (target / "README.md").read_text()
    assert "| xsa | last_n 4 | arXiv 2603.09078; PR #265 (last layers) |" in text and "**better** than 5 bpb" in text
    assert str(variant) not in text and "/home/" not in (target / "train_gpt_readable.py").read_text()
    assert "\ntorch==" in "\n" + (target / "requirements.txt").read_text()
    found = audit(target, None, rules_named("house"))
    # the tiny text is not FineWeb, which the audit of the logs says, and nothing else is wrong
    assert [fault for fault in found.faults if "bytes of text" not in fault] == []
    assert [line for line in found.look_at if "bytes" in line] == []
    assert cli.main(["export", str(variant), *WHO, "--out", str(target)]) == 2  # exists already
    # the README's own lines run in a copy of the folder, once they say where the data is
    place = shutil.copytree(target, tmp_path / "elsewhere")
    (lines,) = re.findall(r"```bash\n(.*?)```", (place / "README.md").read_text(), re.DOTALL)
    train, score = (line for line in lines.splitlines() if "torchrun" in line)
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    assert train.startswith("SEED=1 "), "the script's own seed is another, and so would its score be"
    missing = subprocess.run(train, shell=True, cwd=place, env=path, capture_output=True, text=True)
    assert missing.returncode and "does not exist: say where it is with DATA_PATH=…" in missing.stderr
    for line in (train, score):
        done = subprocess.run(line, shell=True, cwd=place, env={**path, "DATA_PATH": str(tiny.folder)}, text=True)
        assert done.returncode == 0
    assert (place / "artifact.golf").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_exports_pass_the_audit(
    name: str, tiny: OwnDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "runs"))
    cfg = compose([*tiny_overrides(tiny), *OTHERS[name].split(), "rules.code_bytes=exact"])
    _, folder = train_and_score(cfg)
    assert cli.main(["export", str(folder.path), *WHO, "--wrap", "--out", str(tmp_path / "record")]) == 0
    capsys.readouterr()
    found = audit(tmp_path / "record", None, rules_named("house"))
    assert [fault for fault in found.faults if "bytes of text" not in fault] == []
    assert [line for line in found.look_at if "bytes" in line] == []


@pytest.mark.slow
def test_a_submission_with_problems_is_refused_and_nothing_is_written(
    variant: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "record"
    options = ["--track", "10min_16mb", "--out", str(target)]
    assert cli.main(["export", str(variant), *WHO, *options]) == 2
    assert "2 of the 3 seeds that the rules want" in capsys.readouterr().err and not target.exists()
    (tmp_path / "file").write_text("")
    assert cli.main(["export", str(variant), *WHO, "--out", str(tmp_path / "file/record")]) == 2
    shown = capsys.readouterr()
    assert "file/record cannot be written" in shown.err and "training it" not in shown.out
    # A published score is one on FineWeb, unless another text is named.
    assert cli.main(["export", str(variant), *WHO, "--reference", "1.2271", "--out", str(target)]) == 2
    refused = capsys.readouterr().err
    assert "1.2271 is taken as a score on FineWeb validation" in refused and "--text own" in refused
    assert not target.exists()


@pytest.mark.slow
def test_the_script_of_a_run_can_be_read_without_a_submission(variant: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["export", "--read", str(variant)]) == 0
    shown = capsys.readouterr().out
    assert "class XSA" in shown
    compile(shown, "run.py", "exec")


@pytest.mark.slow
def test_a_submission_names_its_author(variant: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["export", str(variant)]) == 2 and "add --author and --github-id" in capsys.readouterr().err


@pytest.mark.slow
def test_every_problem_of_a_run_is_found(variant: Path) -> None:
    runs = gather([variant])
    assert problems(runs, 20_000, 2) == []
    run, other = runs
    run.result.state, run.result.reason = "void", "xsa changed nothing"
    run.cfg.budget.artifact_bytes = run.artifact_bytes
    run.cfg.schedule.warmup_steps = 0
    run.cfg.budget.train_seconds, run.result.train_seconds = 600.0, 660.0
    run.cfg.budget.eval_seconds, run.result.eval_seconds = 600.0, 700.0
    other.result.data_fingerprint = "another"
    found = "\n".join(problems(runs, 20_000, 2))
    for part in ("void: xsa", "20,000 over the cap", "unproven", "660.0 of 600", "700.0 of 600"):
        assert part in found
    assert "2 different data sets" in found


@pytest.mark.slow
def test_runs_have_to_be_seeds_of_one_variant(variant: Path, tiny: OwnDataset, runs: Path) -> None:
    _, folder = train_and_score(compose([*tiny_overrides(tiny), "seed=1"]))
    with pytest.raises(GolfError, match="2 variants"):
        gather([variant, folder.path])
    folder.result.unlink()
    with pytest.raises(GolfError, match=r"no result\.json"):
        gather([folder.path])


def test_a_submission_nobody_described_says_what_it_is() -> None:
    cfg = compose(["scale=record", "model=9l", "tech=[xsa]", "quant=int6_mixed"])
    assert in_a_sentence(cfg) == "9 layers of 512 with xsa, quantized as int6_mixed."
    assert "with" not in in_a_sentence(compose(["experiment=naive_baseline"]))


def test_a_script_finds_the_tokenizer_beside_it_and_names_its_own_variables(
    tiny: OwnDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_gpt, "__file__", str(tmp_path / "train_gpt.py"))
    cfg = compose(tiny_overrides(tiny))
    cfg.data.tokenizer_path = f"data/tokenizers/{tiny.tokenizer_path.name}"
    with pytest.raises(GolfError, match=r"does not exist: say where it is with TOKENIZER_PATH=…"):
        train_gpt.find_inputs(cfg)
    shutil.copy(tiny.tokenizer_path, tmp_path)
    train_gpt.find_inputs(cfg)
    assert cfg.data.tokenizer_path == str(tmp_path / tiny.tokenizer_path.name)
    cfg.data.path = "data/datasets/nowhere"
    with pytest.raises(GolfError, match=r"nowhere does not exist: say where it is with DATA_PATH=…"):
        train_gpt.find_inputs(cfg)
    train_gpt.set_from({"VOCAB_SIZE": "77"}, cfg)
    assert cfg.data.vocab_size == cfg.model.vocab_size == 77
    for name, value in (("SEED", "abc"), ("MAX_WALLCLOCK_SECONDS", "nan"), ("WARMUP_STEPS", "-1")):
        with pytest.raises(GolfError, match=f"{name}={value} is no number from 0 up"):
            train_gpt.set_from({name: value}, cfg)
    cfg.data.train_batch_tokens, cfg.eval.stride = 8 * cfg.data.train_seq_len, cfg.data.train_seq_len
    with pytest.raises(GolfError, match=r"EVAL_STRIDE=\d+ has to be below the \d+ tokens of a sequence"):
        train_gpt.configured(cfg, {})
    for variables in ({"TRAIN_BATCH_TOKENS": "1000"}, {"TRAIN_BATCH_TOKENS": "0"}, {"TRAIN_SEQ_LEN": "0"}):
        with pytest.raises(GolfError, match=r"is no multiple of 8 × TRAIN_SEQ_LEN=\d+ tokens"):
            train_gpt.configured(Config(), variables)


def test_scoring_alone_has_the_kernel_and_the_score_of_the_run(
    finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scoring alone once left attention's kernel to torch, so that a GPU's last digits were others."""
    run = RunFolder(finished_run.folder)
    cfg, chosen = run.read_config(), list[str]()

    def choose(device: torch.device, cfg: Config) -> str:
        chosen.append(cfg.model.attention)
        return choose_kernel(device, cfg)

    monkeypatch.setattr(train_gpt, "configured", lambda settings, environment: cfg)
    monkeypatch.setattr(train_gpt, "choose_kernel", choose)
    monkeypatch.setenv("EVAL_ONLY", "1")
    monkeypatch.setenv("ARTIFACT_PATH", str(run.artifact))
    monkeypatch.chdir(tmp_path)
    train_gpt.run()
    score = read_result(run.result).post_quant
    assert chosen == [cfg.model.attention] and score is not None
    assert f"val_bpb:{score.val_bpb:.8f}" in capsys.readouterr().out
    # A folder may hold the artifact of another script, or none.
    cfg.model.logit_softcap += 1
    with pytest.raises(GolfError, match="holds a model of other settings"):
        train_gpt.run()
    monkeypatch.setenv("ARTIFACT_PATH", str(tmp_path / "none.golf"))
    with pytest.raises(GolfError, match=r"none\.golf cannot be read \(No such file"):
        train_gpt.run()


@pytest.mark.slow
def test_a_script_trains_through_the_loader_of_a_gpu(tiny: OwnDataset, tmp_path: Path) -> None:
    """It once lacked the loader's `close`, which contextlib calls: on a GPU alone, and behind the whole training."""
    source = Bundle(compose([*tiny_overrides(tiny), "launch.device=cuda"])).readable
    there = 'if ranks.device.type != "cuda":'
    assert source.count(there) == 1
    (tmp_path / "train_gpt.py").write_text(source.replace(there, "if False:"))
    place = tmp_path / "not" / "yet" / "a.golf"
    variables = {"DATA_PATH": tiny.folder, "TOKENIZER_PATH": tiny.tokenizer_path, "ARTIFACT_PATH": place}
    given = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    command = [sys.executable, "train_gpt.py"]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "step:6/6" in done.stdout and "_roundtrip_exact" in done.stdout and place.stat().st_size > 1000
    # Another score of the artifact trains nothing, whatever word asks for it.
    again = subprocess.run(
        command, cwd=tmp_path, env={**given, "EVAL_ONLY": "true"}, capture_output=True, text=True, timeout=900
    )
    exact = [line for line in done.stdout.splitlines() if "_roundtrip_exact" in line]
    assert [line for line in again.stdout.splitlines() if "_exact" in line or "step:" in line] == exact
