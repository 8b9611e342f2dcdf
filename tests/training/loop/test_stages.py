"""Stages of the training, against loops that cut the text by hand."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.torch_version import TorchVersion

from golf.bits import Score
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan.plan import make_plan
from golf.lab.proofs.run_proofs import failed_proofs
from golf.run.folder import RunFolder, create_run_folder
from golf.run.progress import Progress
from golf.run.result import OK, read_result
from golf.run.runlog import RunLog
from golf.settings.config import Config, StageConfig, from_dict, mean_batch_tokens, mean_seq_len, stages, to_dict
from golf.training.data.batches import make_loader
from golf.training.data.dataset import open_dataset
from golf.training.data.packed import SequentialRows, document_starts
from golf.training.loop.checkpoint import Checkpoints, Start
from golf.training.loop.clock import RunClock
from golf.training.loop.proving import proving_warm_up
from golf.training.loop.schedule import lr_multiplier, progress_fraction
from golf.training.loop.state import TrainState, build_state
from golf.training.loop.training import train
from golf.training.loop.warmup import warm_up
from golf.training.model.gpt import GPT
from golf.training.ranks import ALONE, Ranks
from tests.support import compose, further, golf_main, metrics, on_ranks, only_run, parity, refusal, tiny_overrides

# Ten steps each: step 10 of 30 stands at 0.3333 of the run and step 20 at 0.6667.
GROWING = "schedule.stages=[{until:0.33,seq_len:64},{until:0.66,seq_len:128,batch_tokens:1536},{}]"
LONG = [
    "data.train_seq_len=192",
    "data.train_batch_tokens=768",
    "data.micro_batches=2",
    "schedule.iterations=30",
    "schedule.warmdown_iters=10",
    "optim.muon_momentum_warmup_steps=0",
    GROWING,
]
SHORT = "schedule.stages=[{until:0.3,seq_len:8},{until:0.6,seq_len:16,batch_tokens:1024},{}]"  # two steps each of six


def trained(cfg: Config, folder: Path, ranks: Ranks = ALONE) -> TrainState:
    """Return the state of a run of `cfg` after its loop, without a warm-up."""
    dataset, log = open_dataset(cfg), RunLog(RunFolder(folder), cfg, is_first=ranks.is_first)
    state = build_state(cfg, ranks)
    log.tokens_after = state.stages.tokens_after
    score = Score(1.0, 1.0, 1, 1, 0.0)
    try:
        train(cfg, state, make_loader(cfg, dataset, ranks), lambda _: score, log, RunClock(ranks))
    finally:
        log.close()
    return state


@pytest.mark.slow
def test_thirty_steps_are_those_of_a_loop_that_cuts_the_text_by_hand(tiny: OwnDataset, tmp_path: Path) -> None:
    cfg = compose([*tiny_overrides(tiny), *LONG, "schedule.stage_warmup_steps=2"])
    found = trained(cfg, tmp_path).model.state_dict()
    expected = build_state(cfg, Ranks())
    # Micro-batches of 384 tokens and the target after them, one after another.
    text, position = np.concatenate(open_dataset(cfg).train).astype(np.int64), 0
    for step in range(30):
        seq_len, micro_batches = [(64, 2), (128, 4), (192, 2)][step // 10]
        expected.step.optimizer.zero_grad()
        for _ in range(micro_batches):
            ids = torch.from_numpy(np.take(text, range(position, position + 385), mode="wrap"))
            position += 385
            rows = [ids[start : start + seq_len + 1] for start in range(0, 384, seq_len)]
            loss = expected.model(torch.stack([row[:-1] for row in rows]), torch.stack([row[1:] for row in rows]))
            (loss / micro_batches).backward()
        rise = 0.5 if step in (10, 20) else 1.0
        expected.step.optimizer.step(rise * min(1.0, (30 - step) / 10), 0.95)
    for name, tensor in expected.model.state_dict().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=2e-5, msg=name)


def on_rank(rank: int, world_size: int, overrides: list[str], folder: Path) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    cfg = compose([*overrides, f"launch.nproc={world_size}"])
    (folder / f"{world_size}_{rank}").mkdir()
    return trained(cfg, folder / f"{world_size}_{rank}", Ranks(rank, world_size)).model.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["coprime", "sequential"])
def test_two_ranks_are_one(tiny: OwnDataset, tmp_path: Path, loader: str) -> None:
    overrides = [*tiny_overrides(tiny), SHORT, f"data.loader={loader}"]
    expected = on_rank(0, 1, overrides, tmp_path)
    for found in on_ranks(2, tmp_path, on_rank, overrides, tmp_path):
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=2e-5, msg=name)


def test_parity_with_lengths_that_grow(tiny: OwnDataset) -> None:
    """PR #2014: every step's length and rates. Its loader drops two steps at a change of length, and golf reads all."""
    arrays, config = parity("seqgrow2014")
    stages_of = ",".join(f"{{until:{until},seq_len:{length}}}" for until, length in config["plan"])
    env = config["env"]
    cfg = compose(
        [
            *tiny_overrides(tiny),
            *("data.loader=packed", "model.within_documents=true", "eval.documents=true"),
            *(f"data.train_seq_len={env['TRAIN_SEQ_LEN']}", "data.train_batch_tokens=1536", "data.micro_batches=2"),
            *(f"budget.train_seconds={config['cap_ms'] / 1000}", "schedule.iterations=20000"),
            *(f"schedule.warmdown_fraction={env['WARMDOWN_FRAC']}", f"schedule.min_lr={env['MIN_LR']}"),
            f"schedule.stages=[{stages_of}]",
            f"schedule.stage_warmup_steps={env['SEQ_CHANGE_WARMUP_STEPS']}",
        ]
    )
    state = build_state(cfg, Ranks())
    for step, elapsed_ms, fraction, length, expected in arrays["step_table"].tolist():
        seconds = elapsed_ms / 1000
        progress = Progress(int(step), progress_fraction(cfg, int(step), seconds), 1.0)
        assert progress.fraction == pytest.approx(fraction, abs=1e-12)
        factor = state.stages.advance(progress) * lr_multiplier(cfg, int(step), seconds)
        assert factor == pytest.approx(expected, abs=1e-9) and state.model.piece_tokens == length, step
    rows = SequentialRows([arrays["shard_tokens"]], config["local_tokens"])
    for batch in config["loader"]:
        row = rows.read(batch["span"] * config["world_size"])
        found, theirs = document_starts(row[:-1], batch["length"]), arrays[f"cu/{batch['batch']}"]
        assert found.tolist() == theirs[: found.size].tolist() and (theirs[found.size :] == found[-1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["sequential", "shuffled", "packed"])
def test_a_run_reads_as_many_tokens_as_the_plan_says(tiny: OwnDataset, runs: Path, loader: str) -> None:
    documents = ["model.within_documents=true", "eval.documents=true"] if loader == "packed" else []
    overrides = [*tiny_overrides(tiny), SHORT, f"data.loader={loader}", *documents]
    done = golf_main(*overrides)
    assert done.returncode == 0, done.stderr
    folder, cfg = only_run(runs), compose(overrides)
    plan = make_plan(cfg)
    expected = 2 * 512 + 2 * 1024 + 2 * 512
    assert plan.steps is not None and plan.steps.expected * plan.batch_tokens == pytest.approx(expected, rel=0.001)
    result = read_result(folder / "result.json")
    assert result.state == OK and result.tokens_seen == expected
    assert [event["tokens"] for event in metrics(folder, "train")] == [512, 1024, 2048, 3072, 3584, 4096]
    assert [event["name"] for event in metrics(folder, "switched_on")] == ["stages[1]", "stages[2]"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_no_graph_is_compiled_while_the_clock_runs(tiny: OwnDataset, runs: Path) -> None:
    late = ["tech=[recurrence]", "tech.recurrence.first=1", "tech.recurrence.last=2", "tech.recurrence.enable_at=0.5"]
    done = golf_main(*tiny_overrides(tiny), SHORT, *late, "launch.compile=full")
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == OK and not [warning for warning in result.warnings if "recompiled" in warning]


def test_every_shape_and_switch_is_run_before_the_clock(tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    late = ["tech=[recurrence]", "tech.recurrence.first=1", "tech.recurrence.last=2", "tech.recurrence.enable_at=0.5"]
    cfg = compose([*tiny_overrides(tiny), SHORT, *late])
    state, seen, forward = build_state(cfg, Ranks()), set(), GPT.forward

    def noting(model: GPT, ids: torch.Tensor, targets: torch.Tensor, active: tuple[str, ...] = ()) -> torch.Tensor:
        seen.add((ids.shape[1], active))
        return forward(model, ids, targets, active)

    monkeypatch.setattr(GPT, "forward", noting)
    assert proving_warm_up(cfg, state, lambda _: None) == []
    assert seen >= {(seq_len, active) for seq_len in (8, 16, 32) for active in ((), ("recurrence",))}
    assert state.stages.number == 0 and state.stages.steps == [0, 0, 0]


@pytest.mark.parametrize("reached", [1, 3, 5])
def test_a_run_resumes_in_its_stage(tiny: OwnDataset, tmp_path: Path, reached: int) -> None:
    """The loader goes on after the tokens of all stages so far, and the step has the stage's shape."""
    cfg = compose([*tiny_overrides(tiny), SHORT, "data.loader=shuffled"])
    folder, state = create_run_folder(cfg, []), build_state(cfg, Ranks())
    dataset = open_dataset(cfg)
    loader = make_loader(cfg, dataset)

    def steps(state: TrainState, numbers: range, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for number in numbers:
            factor = state.stages.advance(Progress(number, number / 6, 1.0))
            state.step(state.stages.cutting(batches.__next__), factor, 0.9)

    def batches_of(loader: object) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield loader.next_batch()  # type: ignore[attr-defined]

    batches = batches_of(loader)
    steps(state, range(reached), batches)
    Checkpoints(cfg, folder, state, "data").save(Start(step=reached, stage_steps=tuple(state.stages.steps)))
    steps(state, range(reached, 6), batches)
    resumed = build_state(cfg, Ranks())
    start = Checkpoints(cfg, folder, resumed, "data").load()
    resumed.stages.resume(start.stage_steps)
    rest = make_loader(cfg, dataset)
    rest.skip(resumed.stages.batches_taken(start.step))
    steps(resumed, range(reached, 6), batches_of(rest))
    assert resumed.stages.steps == state.stages.steps == [2, 2, 2]
    for name, tensor in state.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name


def test_the_proof_of_resume_covers_stages(tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    from golf.training.loop.stages import Stages

    cfg = compose([*tiny_overrides(tiny), SHORT, "launch.checkpoint_seconds=1"])
    assert failed_proofs(cfg, dataset=open_dataset(cfg)) == []
    monkeypatch.setattr(Stages, "resume", lambda self, steps: None)
    (lost,) = failed_proofs(cfg, dataset=open_dataset(cfg))
    assert "stages.steps" in lost and "would be lost by a resume" in lost


def test_a_checkpoint_of_a_run_without_stages_resumes(tiny_cfg: Config) -> None:
    state = build_state(tiny_cfg, Ranks())
    state.stages.resume(())
    assert state.stages.tokens_after(5) == 5 * 512 and state.stages.batches_taken(5) == 5 * 4


def test_packed_documents_are_cut_into_pieces_of_the_stage(tiny: OwnDataset, tmp_path: Path) -> None:
    """A model that reads pieces of 8 tokens gives the losses of one that was built for them."""
    documents = ["data.loader=packed", "model.within_documents=true", "eval.documents=true"]
    staged = compose([*tiny_overrides(tiny), *documents, SHORT])
    plain = compose([*tiny_overrides(tiny), *documents, "data.train_seq_len=8"])
    model = build_state(staged, Ranks())
    expected = build_state(plain, Ranks()).model
    for weight in model.model.parameters():
        weight.data.normal_(std=0.1)
    expected.load_state_dict(model.model.state_dict())
    inputs, targets = make_loader(staged, open_dataset(staged)).next_batch()
    model.stages.enter(0)
    assert torch.equal(model.model(inputs, targets), expected(inputs, targets))
    model.stages.enter(2)
    assert not torch.equal(model.model(inputs, targets), expected(inputs, targets))


def test_lengths_that_a_compiler_may_fold_are_refused(tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = ["data.loader=packed", "model.within_documents=true", "eval.documents=true"]
    cfg = compose([*tiny_overrides(tiny), SHORT, *documents])
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.11.0"))
    build_state(cfg, Ranks())
    cfg.launch.compile = "full"
    with pytest.raises(GolfError, match="to be compiled: set launch"):
        build_state(cfg, Ranks())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", further("blocks")])
def test_compiled_pieces_are_those_of_the_stage(tiny: OwnDataset, mode: str) -> None:
    torch._dynamo.reset()
    documents = ["data.loader=packed", "model.within_documents=true", "eval.documents=true"]
    eager = compose([*tiny_overrides(tiny), SHORT, *documents])
    compiled = compose([*tiny_overrides(tiny), SHORT, *documents, f"launch.compile={mode}"])
    one, other = (build_state(cfg, Ranks()) for cfg in (eager, compiled))
    for weight in one.model.parameters():
        weight.data.normal_(std=0.1)
    other.model.load_state_dict(one.model.state_dict())
    warm_up(compiled, other, lambda _: None)
    inputs, targets = make_loader(eager, open_dataset(eager)).next_batch()
    losses = []
    with torch.compiler.set_stance("fail_on_recompile"):
        for number in range(3):
            for state in (one, other):
                state.stages.enter(number)
            losses.append(one.model(inputs, targets, ()).item())
            assert other.model(inputs, targets, ()).item() == pytest.approx(losses[-1], rel=1e-5)
    assert len(set(losses)) == 3


@pytest.mark.parametrize(
    "overrides, sentence",
    [
        (["schedule.stages=[{until:0.5},{until:0.4},{}]"], "end at 0.5, 0.4, 1: let each `until` be above"),
        (["schedule.stages=[{until:0.5}]"], "leave it out in the last stage"),
        (["schedule.stages=[{until:0.5,seq_len:8},{seq_len:16}]"], "set data.train_seq_len=16"),
        (["schedule.stages=[{until:0.5,seq_len:64},{}]"], "set data.train_seq_len=64"),
        (["schedule.stages=[{until:0.5,seq_len:12},{}]", "data.loader=shuffled"], "seq_len=12 does not divide the 32"),
        (["schedule.stages=[{until:0.5,batch_tokens:300},{}]"], "1 rank read at once: the nearest that is: 256"),
        (["schedule.stages=[{until:0.5,seq_len:0},{}]"], "schedule.stages[0].seq_len=0"),
        (["schedule.stages=[{until:0,seq_len:8},{}]"], "schedule.stages[0].until=0"),
        (["schedule.stages=[{until:0.5,length:8},{}]"], "length"),
        (["schedule.stages=[8,16]"], "schedule.stages"),
    ],
)
def test_stages_that_cannot_be_are_one_sentence(tiny: OwnDataset, overrides: list[str], sentence: str) -> None:
    said = refusal(*tiny_overrides(tiny), *overrides)
    assert sentence in said and "Traceback" not in said


def test_means_over_a_run(tiny_cfg: Config) -> None:
    """Under a clock a stage's share is one of time, so that small batches are more steps."""
    tiny_cfg.schedule.stages = [StageConfig(0.5, 8, 256), StageConfig()]
    tiny_cfg.schedule.iterations = 7
    # Steps 0 to 3 are in the first half.
    tokens = 4 * 256 + 3 * 512
    assert mean_batch_tokens(tiny_cfg) == round(tokens / 7)
    assert mean_seq_len(tiny_cfg) == round((4 * 256 * 8 + 3 * 512 * 32) / tokens)
    tiny_cfg.budget.train_seconds = 10.0
    # In ten seconds at t tokens a second: 5t/256 + 5t/512 steps of 10t tokens.
    assert mean_batch_tokens(tiny_cfg) == round(10 / (5 / 256 + 5 / 512)) and mean_seq_len(tiny_cfg) == 20
    assert stages(from_dict(Config, to_dict(tiny_cfg))) == stages(tiny_cfg)
