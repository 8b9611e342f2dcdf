"""Step time and memory on machines that are not here, against public runs."""

import csv
import dataclasses
import itertools

import pytest
from torch import nn

from golf.commands import plan_command
from golf.errors import GolfError
from golf.lab.plan.gpu_lines import machine_lines
from golf.lab.plan.gpu_plan import GPUPlan, gpu_plan, phases_of
from golf.lab.plan.machines import KINDS, machine_like, overrides_on, parse_machine
from golf.lab.plan.plan import make_plan
from golf.lab.plan.solve import Limits
from golf.lab.plan.step_model import attended_tokens, step_ms
from golf.settings.config import Config
from golf.settings.hardware import assumed
from golf.training.model.build import shapeless_model
from tests.support import ROOT, compose, golf_command

# Two records, and those before this day, have torch's own attention.
FIRST_FA3, WITHOUT_FA3 = "2026-03-22", ("2026-04-03", "2026-04-04")


def on(machine: str, *overrides: str) -> Config:
    parsed = parse_machine(machine)
    with assumed(parsed.hardware()):
        return compose(overrides_on(parsed, overrides))


def planned(machine: str, *overrides: str) -> tuple[Config, GPUPlan]:
    cfg = on(machine, *overrides)
    return cfg, gpu_plan(cfg, shapeless_model(cfg), parse_machine(machine), [], 20.0)


@pytest.mark.parametrize(
    ("overrides", "milliseconds", "mib"),
    [
        (["experiment=naive_baseline"], 43.54, 10_184),
        (["experiment=naive_baseline", "data.train_seq_len=2048"], 51.85, 10_247),
        (["experiment=pr593_11l", "model.attention=fa3"], 83.53, 21_471),
    ],
)
def test_published_runs(overrides: list[str], milliseconds: float, mib: int) -> None:
    _, plan = planned("8xh100", *overrides)
    assert plan.formula_ms == pytest.approx(milliseconds, rel=0.05)
    assert plan.peak_mib == pytest.approx(mib, rel=0.03)
    low, expected, high = plan.step_time.step_ms or (0, 0, 0)
    assert 0.99 * low < milliseconds < high and low < expected < high


def test_layers_with_xsa_are_counted() -> None:
    cfg = on("8xh100", "model=11l", "tech=[xsa]", "tech.xsa.last_n=4")
    ((_, work),) = phases_of(cfg, shapeless_model(cfg))
    assert work.xsa_share == pytest.approx(4 / 11)


def test_layers_that_loop_count_from_the_moment_they_do() -> None:
    base = on("8xh100", "model=11l")
    (plain,) = phases_of(base, shapeless_model(base))
    looped = on("8xh100", "model=11l", "tech=[recurrence]", "tech.recurrence.first=3", "tech.recurrence.last=5")
    looped.tech["recurrence"].enable_at = 0.35
    phases = phases_of(looped, shapeless_model(looped))
    assert [(share, work.layers) for share, work in phases] == [(0.35, 11), (0.65, 14)]
    assert phases[0][1].matmul_params == plain[1].matmul_params
    extra = phases[1][1].matmul_params - phases[0][1].matmul_params
    block = shapeless_model(base).blocks[0]
    assert extra == 3 * sum(m.weight.numel() for m in block.modules() if isinstance(m, nn.Linear))
    expected = 1 / (0.35 / step_ms([(1.0, phases[0][1])]) + 0.65 / step_ms([(1.0, phases[1][1])]))
    assert step_ms(phases) == pytest.approx(expected)


@pytest.mark.slow
def test_attention_that_stops_at_a_document_costs_as_in_the_fit() -> None:
    """Two records of packed documents took 122.0 and 121.4 ms; the fit read their rows in the same way."""
    names = ("2026-04-18_caseops_taper", "2026-04-29_caseops_smear_lqer_3seeds")
    for name, milliseconds in zip(names, (122.0, 121.4), strict=True):
        cfg, plan = planned("8xh100", f"experiment=records/{name}", "model.attention=fa3")
        assert plan.formula_ms == pytest.approx(milliseconds, rel=0.02)
    (*_, (_, work)) = phases_of(cfg, shapeless_model(cfg))
    assert work.seq_len == attended_tokens(2048, True) < attended_tokens(2048, False) == 2048


@pytest.mark.slow
def test_the_table_of_the_guide_is_what_the_plan_says() -> None:
    with (ROOT / "docs/records.csv").open(newline="") as file:
        experiments = {row["folder"][:44]: row["experiment"] for row in csv.DictReader(file)}
    lines = (ROOT / "docs/planning.md").read_text().partition("| record | ms | planned |")[2].splitlines()[2:]
    rows = [line.split(" | ") for line in itertools.takewhile(lambda line: line.startswith("|"), lines)]
    assert len(rows) >= 25
    for folder, _, shown_ms, _, _, shown_mib in rows:
        name = folder.removeprefix("| ")
        attention = "sdpa" if name < FIRST_FA3 or name.startswith(WITHOUT_FA3) else "fa3"
        _, plan = planned("8xh100", f"experiment={experiments[name]}", f"model.attention={attention}")
        assert float(shown_ms) == pytest.approx(plan.formula_ms, rel=0.01), name
        assert int(shown_mib.removesuffix(" |").replace(",", "")) == pytest.approx(plan.peak_mib, rel=0.01), name


def test_machines_and_their_names() -> None:
    assert parse_machine("8xH100").title == "8× NVIDIA H100 80GB HBM3" and parse_machine("4090").gpus == 1
    assert machine_like("8× NVIDIA H100 80GB HBM3") == parse_machine("8xh100")
    assert machine_like("1× NVIDIA GeForce RTX 4090") == parse_machine("4090")
    assert (
        machine_like("1× NVIDIA H100 PCIe")
        is machine_like("1× NVIDIA H100 NVL")
        is machine_like("EPYC, 2 cores")
        is None
    )
    for wrong in ("8xtpu", "0xh100", "00xh100", "h100x8", ""):
        with pytest.raises(GolfError, match="write 8xh100 or 1x and one of h100"):
            parse_machine(wrong)


def test_what_does_not_fit_is_said_before_it_is_rented() -> None:
    cfg, plan = planned("1x4090", "experiment=pr593_11l", "eval=sliding64")
    text = "\n".join(machine_lines(cfg, plan))
    assert "MAY NOT FIT" in text and "OVER the 600 s" in text and "rough" in text
    cfg, plan = planned("1x4090", "experiment=pr593_11l", "data.micro_batches=64")
    assert "FIT" not in "\n".join(machine_lines(cfg, plan)) and plan.memory_left_mib > 0
    cfg, plan = planned("1x4090", "model=11l", "data.train_batch_tokens=2097152")
    assert "DOES NOT FIT" in "\n".join(machine_lines(cfg, plan))


def test_dollars_are_of_training_and_of_a_whole_job() -> None:
    cfg, plan = planned("8xh100", "experiment=naive_baseline")
    assert machine_lines(cfg, plan)[-1].startswith("dollars    3.33 for training and scoring, 8.33 for a job of 25 min")
    # However long the training is, a job takes longer.
    cfg, plan = planned("1xh100", "experiment=naive_baseline", "scale=one_card")
    assert machine_lines(cfg, plan)[-1].startswith(
        "dollars    26.67 for training and scoring, 28.33 for a job of 85 min"
    )


def test_limits_are_bytes_memory_and_steps_together() -> None:
    machine = parse_machine("1xh100")
    with assumed(machine.hardware()):
        cfg = compose(overrides_on(machine, ["quant=int6_mixed", "model=4l"]))
        plan = make_plan(cfg, [], code=0, machine=machine)
    assert plan.gpu is not None and plan.steps is not None
    steps = round(plan.steps.expected)
    enough, too_many = (Limits(machine, wanted).left(plan)["steps"] for wanted in (steps - 1, steps + 2))
    assert enough > 0 > too_many
    heavy = dataclasses.replace(plan, gpu=dataclasses.replace(plan.gpu, peak_mib=70_000.0))
    assert Limits(machine).left(heavy)["MiB of memory"] < 0 < min(Limits(machine).left(plan).values())
    full = dataclasses.replace(plan, cap_bytes=0)
    assert Limits(machine).left(full)["bytes under the cap"] < 0


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["launch.device=cpu"], "not with launch.device=cpu"),
        (["launch.compile=off"], "not with launch.compile=off"),
        (["model.compute_dtype=fp32"], "not with model.compute_dtype=fp32"),
        (["launch.nproc=1"], "the configuration has 1 ranks, and 8× NVIDIA H100 80GB HBM3 is planned"),
        (["launch.nproc=2", "launch.nodes=2"], "the configuration has 4 ranks"),
    ],
)
def test_what_the_formulas_do_not_know_is_refused(overrides: list[str], sentence: str) -> None:
    cfg = on("8xh100", "model=4l", *overrides)
    with pytest.raises(GolfError, match=sentence):
        make_plan(cfg, [], code=0, machine=parse_machine("8xh100"))
    # Without a named machine such a run is planned from finished ones.
    assert make_plan(cfg, [], code=0).gpu is None


def test_a_plan_says_what_flash_attention_3_would_save() -> None:
    cfg, plan = planned("8xh100", "experiment=pr593_11l", "model.attention=sdpa")
    _, fast = planned("8xh100", "experiment=pr593_11l", "model.attention=fa3")
    assert plan.kernels["fa3"].step * plan.formula_ms == pytest.approx(fast.formula_ms)
    assert fast.kernels["sdpa"].step * fast.formula_ms == pytest.approx(plan.formula_ms)
    assert plan.kernels["sdpa"].step == fast.kernels["fa3"].step == 1.0
    lines = "\n".join(machine_lines(cfg, plan))
    assert "attention  fa3    86.0 ms a step" in lines and "install it there: pip install flash-attn-3" in lines
    cfg, plan = planned("8xa100", "experiment=naive_baseline")
    assert not any(line.startswith("attention") for line in machine_lines(cfg, plan))


def test_documents_have_three_kernels_of_which_the_plan_says_what_each_gives() -> None:
    """The dense mask by hand: 3 · 4 · 4,096 keys · 512 channels for each of 98,304 tokens, at a fifth of the peak."""
    record, found = "experiment=records/2026-04-10_varlen_attn", {}
    for attention in ("fa3", "varlen", "sdpa"):
        cfg, plan = planned("8xh100", record, f"model.attention={attention}")
        found[attention] = plan
        for other, ms in (("fa3", 120.2), ("varlen", 127.9), ("sdpa", 309.0)):
            assert plan.kernels[other].step * plan.formula_ms == pytest.approx(ms, rel=0.03), (attention, other)
    layers = [work.layers for _, work in phases_of(cfg, shapeless_model(cfg))]
    masked = [12 * 4096 * 512 * n * 98_304 / 200e12 * 1000 for n in layers]
    assert min(masked) < found["sdpa"].formula_ms - found["fa3"].formula_ms + 5 < max(masked)
    assert found["sdpa"].peak_mib > 1.05 * found["fa3"].peak_mib == 1.05 * found["varlen"].peak_mib
    assert found["fa3"].ttt_seconds is not None and found["varlen"].ttt_seconds is not None
    assert found["fa3"].kernels["varlen"].scores * found["fa3"].ttt_seconds == pytest.approx(
        found["varlen"].ttt_seconds
    )
    # Where flash attention 3 cannot be imported, documents get torch's table and not the mask.
    cfg, plan = planned("8xh100", record)
    assert (cfg.model.attention, plan.formula_ms) == ("varlen", found["varlen"].formula_ms)
    lines = machine_lines(cfg, plan)
    assert [line.split()[-2:] for line in lines if "planned)" in line] == [["documents;", "planned)"]]


def test_the_command_and_its_mistakes(runs: object) -> None:
    done = golf_command("plan", "model=9l", "rules.code_bytes=estimate", "--on", "8xh100", "--json")
    assert done.returncode == 0 and '"machine": "8× NVIDIA H100 80GB HBM3"' in done.stdout
    wrong = golf_command("plan", "model=9l", "--usd-per-hour", "20")
    assert wrong.returncode != 0 and "name it, such as --on 8xh100" in wrong.stderr
    assert set(KINDS) == {"h100", "h200", "a100", "4090", "5090"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--on="], "'' is no machine that golf knows"),
        (["--on=8xh100", "--usd-per-hour=-5"], "--usd-per-hour -5 is no price"),
        (["--on=8xh100", "--usd-per-hour=nan"], "--usd-per-hour nan is no price"),
        (["--on=8xh100", "--min-steps=5"], "--min-steps: for --solve only"),
        (["--solve=model.mlp_hidden", "--multiple-of=0"], "--multiple-of 0 has to be at least 1"),
        (["--multiple-of=8"], "--multiple-of: for --solve only"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: list[str], sentence: str) -> None:
    with pytest.raises(GolfError, match=sentence):
        plan_command.main(["model=4l", *options])
