"""Every public record that docs/records.csv calls composed composes, with the published number of parameters."""

import csv
import dataclasses
import functools
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import golf
from golf.artifact.quant.policy import rounded_to_nearest
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan.tensors import stored_tensors
from golf.lab.report.statistics import WELCH, Comparison
from golf.launch.launcher import train_and_score
from golf.run.identity import variant_id
from golf.run.result import OK
from golf.settings.config import Config, eval_seq_len, stages, ttt_recipe
from golf.training.loop.state import build_state
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.build import build_model
from golf.training.ranks import Ranks
from tests.support import ROOT, compose, further, tiny_overrides

RECORDS_PAGE = ROOT / "docs/records.md"
PUBLISHED = ROOT.parent / "shared" / "reference" / "records.csv"
ANOTHER_LOG = "2026-03-19_MLP3x_QAT_Int6_SlidingWindow"  # its only log is of a smaller model than the record's


@functools.cache
def settings_table() -> dict[str, dict[str, str]]:
    with (ROOT / "docs/records_settings.csv").open(newline="") as file:
        return {row["folder"]: row for row in csv.DictReader(file)}


@functools.cache
def records() -> list[dict[str, str]]:
    with (ROOT / "docs/records.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# Records that differ from another one in numbers alone, and so take the same path through the code.
SAME_PATH = {
    "2026-03-18_long_context_seq2048": "2026-03-17_naive_baseline",
    "2026-03-18_lower_lr": "2026-03-17_naive_baseline",
    "2026-03-19_training_opt_seq4096": "2026-03-17_naive_baseline",
    "2026-04-22_caseops_gated_attn_clip12": "2026-04-19_caseops_gated_attn",
    "2026-04-29_caseops_smear_lqer_3seeds": "2026-04-27_caseops_smear_lqer",
}
WHOLE = ("records/2026-04-05_sp8192_sdclip_loop45x2", "records/2026-04-27_caseops_lqer_9hp")
PROPOSALS = ("caseops_trellis_cap", "caseops_long_trellis")
NOTABLE = ("notable/2026-04-28_gated_deltanet",)
COMPOSED = records()


@pytest.mark.slow
@pytest.mark.parametrize("record", COMPOSED, ids=lambda record: record["folder"])
def test_a_record_composes_with_the_published_number_of_parameters(record: dict[str, str]) -> None:
    cfg = compose([f"experiment={record['experiment']}", "scale=record"])
    with torch.device("meta"):
        parameters = sum(p.numel() for p in build_model(cfg).parameters())
    assert parameters + unread_parameters(cfg) == int(record["parameters"])


def test_what_the_printed_settings_leave_is_named() -> None:
    table = settings_table()
    assert list(table) == [record["folder"] for record in COMPOSED]
    for record in COMPOSED:
        row = table[record["folder"]]
        kinds = ("equal", "another_form", "off", "no_effect", "another_log", "different")
        assert sum(int(row[kind]) for kind in kinds) == int(row["settings"])
        assert record["status"] != "exact" or row["different"] == "0"
        assert (row["different"] == "0") == (row["differences"] == "")


def unread_parameters(cfg: Config) -> int:
    """Return how many parameters the scripts keep that nothing reads.

    They are λ `[2, 2]` and ρ `[2]` of layers without lanes, and matrices, gains and output scales of attention in
    layers that have none.
    """
    lanes, none = cfg.tech.get("parallel_lanes"), cfg.tech.get("no_attention")
    first = lanes.first if lanes is not None and lanes.form.startswith("crossed") else 0
    m, kv_dim = cfg.model, cfg.model.num_kv_heads * cfg.model.model_dim // cfg.model.num_heads
    attention = 2 * m.model_dim * (m.model_dim + kv_dim) + m.num_heads + m.model_dim
    # The runs of 30 April and later keep the two scalars of an asymmetric cap, which nothing trains.
    scalars = 2 if cfg.quant.embed.finer_columns or cfg.quant.lqer.group == 32 else 0
    # The record of 16 April keeps a SmearGate of 12 weights and a strength that no optimizer has.
    smear = 13 if cfg.name == "sp8192_smear_output_gate" else 0
    # The record of 24 March keeps an untied head of zeros.
    head = m.vocab_size * m.model_dim if "factored_embedding" in cfg.tech else 0
    return (4 + 2) * first + (attention * len(none.layers) if none else 0) + smear + scalars + head


def test_every_record_and_every_file_has_a_row() -> None:
    merged = [record for record in records() if record["status"] != "frontier"]
    assert len(merged) == 46 and len({record["folder"] for record in records()}) == len(records())
    assert {record["status"] for record in merged} <= {"exact", "documented"}
    assert all(record["what_differs"] for record in records() if record["status"] != "exact")
    files = {f"records/{path.stem}" for path in (ROOT / "conf/experiment/records").glob("*.yaml")}
    assert {record["experiment"] for record in COMPOSED} == files
    assert len(COMPOSED) == len(files), "two records share an experiment"


def test_every_record_but_the_baseline_builds_on_an_earlier_one() -> None:
    (baseline,) = (record for record in records() if not record["parent"])
    known = {record["folder"]: record for record in records()}
    for record in records():
        assert record is baseline or known[record["parent"]]["folder"][:10] <= record["folder"][:10]
        assert bool(record["sd_bpb"]) == (int(record["seeds"]) > 1)
        assert float(record["mean_bpb"]) - float(record["published_bpb"]) == pytest.approx(0, abs=3e-3)
    # The tree is the only block of the page that begins with a score.
    (tree,) = re.findall(r"^```\n(1\..*?)^```", RECORDS_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    drawn = [line.split(" #")[0].rpartition(" ")[2] for line in tree.splitlines() if line[0] != " "]
    assert sorted(drawn) == sorted(map(name_of, records()))


def test_the_page_has_every_step_with_its_difference() -> None:
    known = {record["folder"]: record for record in records()}
    text = RECORDS_PAGE.read_text()
    for record in records():
        if parent := known.get(record["parent"]):
            start = rf"\| `{re.escape(name_of(record))}`(?: \(#\d+\))? on `{re.escape(name_of(parent))}` \|"
            (said,) = re.findall(rf"^{start} {record['published_bpb']} \| ([^|]*) \|", text, re.MULTILINE)
            assert said == difference(record, parent), record["folder"]


def name_of(record: dict[str, str]) -> str:
    return record["experiment"].removeprefix("records/") or record["folder"]


def difference(record: dict[str, str], parent: dict[str, str]) -> str:
    """Return the difference of two records' means with its 90 % interval by Welch's test, as the page has it."""
    between = float(record["mean_bpb"]) - float(parent["mean_bpb"])
    number = f"{between:+.4f}".replace("-", "−")
    if not (record["sd_bpb"] and parent["sd_bpb"]):
        return f"{number}, one seed {'of the parent' if record['sd_bpb'] else 'alone'}"
    counts = [int(one["seeds"]) for one in (record, parent)]
    parts = [float(one["sd_bpb"]) ** 2 / n for one, n in zip((record, parent), counts, strict=True)]
    df = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True))
    low, high = Comparison(between, math.sqrt(sum(parts)), df, WELCH).interval(0.9)
    return f"{number} ± {(high - low) / 2:.4f}, {'shown' if high < 0 or low > 0 else '**not shown**'}"


def test_parameters_and_scores_are_those_of_the_public_logs() -> None:
    if not PUBLISHED.exists():
        pytest.skip("needs ../shared/reference, which is not beside this checkout")
    with PUBLISHED.open(newline="") as file:
        logs = {row["folder"]: row for row in csv.DictReader(file) if row["track"] == "10min"}
    for record in records():
        if record["folder"] != ANOTHER_LOG and record["status"] != "frontier":
            assert logs[record["folder"]]["params"] == record["parameters"], record["folder"]
            assert float(record["published_bpb"]) == pytest.approx(float(logs[record["folder"]]["bpb_final"]), abs=2e-3)


# What the logs of PR #2135, #2140, #2014 and #1953 print. The rate of the last three is 1e-4 times their multiplier.
FRONTIER = (
    "2026-05-01_caseops_tilt_calib32",
    "2026-05-01_caseops_tilt_leaky03",
    "2026-04-30_caseops_growing_length",
    "2026-04-30_caseops_long_context",
)
NO_QV, NO_K = ["k", "o", "mlp", "head"], ["q", "v", "o", "mlp", "head"]
CONSTANT_TILT = ("ngram", "constant", 2.625, [15], [0.8], [1])
PRINTED_BY_FRONTIER: dict[str, tuple[Any, ...]] = {
    "data.train_seq_len": (2048, 3072, 3072, 2048),
    "schedule.stage_warmup_steps": (0, 32, 32, 0),
    "optim.matrix_lr": (0.028, 0.026, 0.026, 0.026),
    "model.qk_gain_init": (5.0, 5.25, 5.25, 5.25),
    "quant.embed.finer_columns": (0, 64, 64, 64),
    "quant.lqer.rank": (4, 4, 4, 4),
    "quant.lqer.top": (3, 3, 3, 3),
    "quant.lqer.group": (32, 64, 64, 64),
    "quant.calibration.tokens": (32 * 98_304, 16 * 98_304, 16 * 98_304, 16 * 98_304),
    "quant.calibration.reserve_seconds": (0.5, 4.0, 4.0, 4.0),
    "eval.ttt.lora_targets": (NO_K, NO_QV, NO_QV, NO_QV),
    "eval.ttt.lora_rank": (80, 80, 80, 80),
    "eval.ttt.lora_alpha": (144.0, 144.0, 144.0, 144.0),
    "eval.ttt.lr": (8e-5, 7.5e-5, 7.5e-5, 7.5e-5),
    "eval.ttt.lora_weight_decay": (2.0, 0.5, 0.5, 0.5),
    "eval.ttt.lora_beta2": (0.99, 0.99, 0.99, 0.99),
    "eval.ttt.chunk_tokens": (48, 64, 48, 48),
    "eval.ttt.lora_chunks": ([], [[256, 16], [2000, 32]], [[256, 8], [2000, 24]], []),
    "eval.ttt.batch_seqs": (64, 24, 24, 64),
    "eval.ttt.lora_phases.count": (1, 1, 1, 3),
    "eval.ttt.lora_phases.documents": (2500, 2500, 2500, 2500),
}


@pytest.mark.parametrize("place", range(len(FRONTIER)), ids=FRONTIER)
def test_presets_of_the_frontier_have_the_printed_settings(place: int) -> None:
    cfg = compose([f"experiment=records/{FRONTIER[place]}", "scale=record"])
    found = {key: functools.reduce(getattr, key.split("."), cfg) for key in PRINTED_BY_FRONTIER}
    assert found == {key: values[place] for key, values in PRINTED_BY_FRONTIER.items()}
    scored, trained = (2560, 3072, 3072, 2560)[place], (2048, 1024, 1024, 2048)[place]
    assert eval_seq_len(cfg) == ttt_recipe(cfg).seq_len == scored and stages(cfg)[0].seq_len == trained
    tilt, leaky = cfg.eval.tilt, cfg.tech["leaky_relu"]
    settings = (tilt.method, tilt.strength, tilt.beta, tilt.contexts, tilt.least_shares, tilt.least_counts)
    assert settings == CONSTANT_TILT if place < 2 else tilt.method == "off"
    assert leaky.slope == (0.3 if place == 1 else 0.5)
    assert ("fp16" in cfg.quant.by_name.values()) == (place == 0)


# What the command in the README of PR #640 sets.
TERNARY: dict[str, Any] = {
    "model.num_layers": 10,
    "model.model_dim": 768,
    "model.num_heads": 8,
    "model.num_kv_heads": 4,
    "model.mlp_mult": 4.0,
    "model.vocab_size": 8192,
    "model.rope_base": 5000,
    "model.logit_softcap": 10,
    "model.qk_gain_init": 2.25,
    "model.tie_embeddings": True,
    "data.train_seq_len": 1024,
    "data.train_batch_tokens": 524_288,
    "optim.matrix_lr": 0.04,
    "optim.scalar_lr": 0.02,
    "optim.tied_embed_lr": 0.02,
    "optim.muon_wd": 0.0,
    "optim.adam_wd": 0.0,
    "optim.muon_backend_steps": 3,
    "optim.muon_momentum": 0.95,
    "optim.muon_momentum_warmup_start": 0.85,
    "optim.muon_momentum_warmup_steps": 500,
    "optim.muon_row_normalize": True,
    "optim.muon_row_eps": 1.1920929e-07,
    "optim.grad_clip_norm": 0.0,
    "schedule.warmdown_fraction": 0.2,
    "schedule.warmup_steps": 5,
    "schedule.iterations": 10_000,
    "eval.stride": 16,
    "quant.small_numel": 65_536,
    "quant.control_format": "fp16",
}


def test_the_ternary_record_has_the_settings_of_its_command() -> None:
    cfg = compose(["experiment=records/2026-03-24_ternary_unet", "scale=record"])
    assert {key: functools.reduce(getattr, key.split("."), cfg) for key in TERNARY} == TERNARY
    tech = {name: dataclasses.asdict(technique) for name, technique in cfg.tech.items()}
    assert (tech["factored_embedding"], tech["yarn"]) == ({"dim": 254}, {"factor": 2048 / 1024})
    assert (tech["ternary_groups"], tech["z_loss"]) == ({"group": 128, "scale": "mean"}, {"weight": 1e-4})
    with torch.device("meta"):
        tensors = stored_tensors(cfg, build_model(cfg).scored_weights())
    weights = Counter[str]()
    for tensor in tensors:
        weights[tensor.format] += tensor.numel
    # A fused QKV and three further matrices a layer; table, two maps and two-dimensional controls; the rest.
    assert weights == {"ternary_groups": 64_880_640, "e4m3": 2_490_112, "fp16": 23_632}


def test_notable_runs_compose_and_have_rows() -> None:
    with (ROOT / "docs/notable.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["experiment"] for row in rows} == {path.stem for path in (ROOT / "conf/experiment/notable").glob("*")}
    for row in rows:
        cfg = compose([f"experiment=notable/{row['experiment']}", "scale=record"])
        with torch.device("meta"):
            assert sum(p.numel() for p in build_model(cfg).parameters()) == int(row["parameters_here"])
        # An experiment of another size than its pull request may not carry the score of it.
        text = (ROOT / f"conf/experiment/notable/{row['experiment']}.yaml").read_text()
        assert row["parameters_there"] == row["parameters_here"] or not re.search(r"1\.\d{3,4}", f"{row} {text}")


@pytest.mark.parametrize(
    ("short", "record"),
    [
        ("naive_baseline", "2026-03-17_naive_baseline"),
        ("fp16_embed_wd3600", "2026-03-18_fp16_embed_wd3600"),
        ("lower_lr", "2026-03-18_lower_lr"),
    ],
)
def test_short_names_are_the_same_variants(short: str, record: str) -> None:
    known, full = (compose([f"experiment={name}", "scale=record"]) for name in (short, f"records/{record}"))
    assert variant_id(known) == variant_id(full) and known.name == full.name


@pytest.mark.parametrize(("record", "other"), SAME_PATH.items())
def test_records_of_one_path_differ_in_numbers_alone(record: str, other: str) -> None:
    one, two = (dataclasses.asdict(compose([f"experiment=records/{name}", "scale=record"])) for name in (record, other))
    assert without_numbers({**one, "name": ""}) == without_numbers({**two, "name": ""})


def without_numbers(value: Any) -> Any:
    """Return `value` with every number replaced by whether it is zero, and formats of single tensors by nothing."""
    if isinstance(value, dict):
        return {key: without_numbers(item) for key, item in value.items() if key != "by_name"}
    if isinstance(value, list):
        return [without_numbers(item) for item in value]
    return value != 0 if isinstance(value, int | float) and not isinstance(value, bool) else value


TRAINED = [*(r["experiment"] for r in COMPOSED if r["experiment"][8:] not in SAME_PATH), *PROPOSALS, *NOTABLE]


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [further(name) if i % 2 else name for i, name in enumerate(TRAINED)])
def test_a_record_trains_two_steps(experiment: str, tiny: OwnDataset) -> None:
    cfg = smallest(experiment, tiny)
    state = build_state(cfg, Ranks())
    first, later = state.switches.on, state.switches.later_sets()
    losses = [state.step(lambda: synthetic_batch(cfg), 1.0, 0.9, active).item() for active in (first, *later, first)]
    assert all(math.isfinite(loss) for loss in losses)
    nearest = rounded_to_nearest(cfg.quant)
    packed = golf.pack(
        golf.quantize(state.model.scored_weights(), nearest, tech=cfg.tech), cfg.model, nearest, cfg.tech
    )
    assert 1000 < len(packed) < 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("experiment", WHOLE)
def test_whole_runs_of_two_records(experiment: str, tiny: OwnDataset, runs: Path) -> None:
    cfg = smallest(experiment, tiny)
    # Tests of scoring run it; at these sizes its short chunks would take minutes.
    cfg.eval.ttt.method = "off"
    result, _ = train_and_score(cfg)
    assert result.state == OK and result.steps == 2, result.reason


def smallest(experiment: str, tiny: OwnDataset) -> Config:
    """Return the configuration of a record at the least size that has all of its parts, for two steps."""
    own = [o for o in tiny_overrides(tiny) if not o.startswith(("model=", "schedule.", "eval.val_at_start"))]
    few = ["schedule.iterations=2", "schedule.warmup_steps=2", "eval.val_at_start=false", "eval.val_loss_every=0"]
    quick = ["quant.calibration.tokens=512", "quant.codec_level=1", "eval.ttt.epochs=1"]
    quick += ["data.train_batch_tokens=64", "data.micro_batches=1"]
    record = compose([f"experiment={experiment}", "scale=record"])
    if record.eval.stride:
        quick.append("eval.stride=16")
    if record.eval.ttt.method == "lora":
        quick.append("eval.ttt.chunk_tokens=16")
    if record.eval.ttt.lora_chunks:
        quick.append("eval.ttt.lora_chunks=[[20,8]]")
    replaced = {o.partition("=")[0] for o in quick}
    own = [o for o in own if o.partition("=")[0] not in replaced]
    return compose([f"experiment={experiment}", *own, *few, *quick])
