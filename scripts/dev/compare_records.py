"""Compare every setting that a public record prints with its preset: `python scripts/dev/compare_records.py`.

Writes docs/records_settings.csv, a row a record. Needs ../shared/reference/record_settings.json: for every record the
settings of its log, or its script's defaults under the variables of its README, by the script's own names.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from golf.artifact.quant.gptq import BLOCK_COLUMNS
from golf.field import env_names as names
from golf.field.env_techniques import is_off, technique_overrides, variables_of_techniques
from golf.files import write_atomic
from golf.paths import ROOT
from golf.settings.composition import compose
from golf.settings.config import Config, TTTRecipe, eval_seq_len, mlp_hidden, ttt_recipe
from golf.training.loop.calibration import TEMPERATURE

PRINTED = ROOT.parent / "shared/reference/record_settings.json"
TABLE = ROOT / "docs/records_settings.csv"
RANKS = 8  # of every record
NOT_NAMED = "docs/records.csv does not name it"
# Kinds of the outcome of one setting. `off`: on neither side, or a detail of what is. `no effect`: the script does not
# read it, or files, logs and speed alone depend on it. `another form`: the same by a setting of another name or unit.
# `another log`: another log of the record, behind its score as well, prints what the preset has.
EQUAL, ANOTHER_FORM, OFF, NO_EFFECT = "equal", "another_form", "off", "no_effect"
ANOTHER_LOG, DIFFERENT = "another_log", "different"
KINDS = (EQUAL, ANOTHER_FORM, OFF, NO_EFFECT, ANOTHER_LOG, DIFFERENT)

# Starts of names → the switch that they are details of.
DETAILS = {
    "ETLB_": "ETLB_ENABLED",
    "GLOBAL_TTT_": "TTT_ENABLED",
    "PHASED_TTT_": "TTT_ENABLED",
    "TTT_": "TTT_ENABLED",
    "LAWA_": "LAWA_ENABLED",
    "SLOT_": "SLOT_ENABLED",
    "SWA_": "SWA_ENABLED",
    "MTP_LOSS_WEIGHT": "MTP_NUM_HEADS",
    "GATED_ATTN_INIT_STD": "GATED_ATTN_ENABLED",
    "ATTN_OUT_GATE_SRC": "ATTN_OUT_GATE_ENABLED",
    "BLOCK_LARS_": "BLOCK_LARS_TRUST",
    "N_INT6_LAYERS": "MIXED_QUANT",
    "GPTQ_": "USE_GPTQ",
    "MATRIX_LR_EARLY": "BANK_SPLIT",
}
# Names that files, logs and speed alone depend on, or that the scripts print and never use.
UNUSED = {
    *("MUON_BETA2", "ROPE_TRAIN_SEQ_LEN", "LATE_QAT", "LATE_QAT_THRESHOLD", "QAT_THRESHOLD", "EVAL_BATCH_SIZE"),
    *("EVAL_BATCH_SEQS", "GPTQ_BATCH_SIZE", "VAL_BATCH_TOKENS", "FUSED_CE_ENABLED", "GRAD_ACCUM_STEPS", "GPTQ_ENABLED"),
    *("TTT_EVAL_BATCHES", "VAL_DOC_FRACTION", "SKIP_POST_TRAIN_EVAL", "POST_GPTQ_EVAL_ONLY", "RECUR_WARMUP_STEPS"),
    *("SLIDING_WINDOW_ENABLED", "NGRAM_OPEN_TABLE_BITS", "ETLB_CLIP", "ETLB_LR", "ETLB_STEPS", *names.NOT_THE_MODEL),
}


@dataclass(frozen=True)
class Compared:
    """One printed setting beside its counterpart in the preset."""

    name: str
    there: str
    kind: str
    here: str = ""


def formats(cfg: Config) -> list[str]:
    """Return the number formats of the matrices of attention and MLPs."""
    return [cfg.quant.attn.format, cfg.quant.mlp.format]


def calibration_tokens(cfg: Config) -> int:
    """Return the tokens of the Hessians: whole batches of all ranks, or as many as the model writes."""
    wanted, batch = cfg.quant.calibration.tokens, cfg.data.train_batch_tokens
    return wanted if cfg.quant.calibration.source == "self_generated" else math.ceil(wanted / batch) * batch


def calibration_samples(cfg: Config) -> float:
    """Return the sequences that the model writes for its Hessians, or a rank's batches that are read for them."""
    own_text = cfg.quant.calibration.source == "self_generated"
    return calibration_tokens(cfg) / (eval_seq_len(cfg) if own_text else cfg.data.train_batch_tokens / RANKS)


def looped(cfg: Config) -> str:
    """Return the layers that run more than once, as the scripts list them."""
    loop = cfg.tech.get("recurrence")
    return ",".join(str(i) for i in range(loop.first, loop.last + 1)) if loop else ""


def gate_format(cfg: Config) -> bool:
    """Tell whether the attention's gates are stored as int8."""
    rules = [rule for pattern, rule in cfg.quant.by_name.items() if "attn_gate" in pattern]
    return any(isinstance(rule, dict) and rule.get("format") == "int8" for rule in rules)


# Names whose setting here has another name or unit → what the preset says in the script's terms.
ANOTHER: dict[str, Callable[[Config], Any]] = {
    "TTT_ENABLED": lambda cfg: cfg.eval.ttt.method != "off",
    "PHASED_TTT_ENABLED": lambda cfg: cfg.eval.ttt.lora_phases.count > 0,
    "COMPRESSOR": lambda cfg: cfg.quant.codec,
    "EMBED_BITS": lambda cfg: cfg.quant.embed.format.removeprefix("int"),
    "MATRIX_BITS": lambda cfg: "/".join(sorted({name.removeprefix("int") for name in formats(cfg)})),
    "MATRIX_CLIP_SIGMAS": lambda cfg: cfg.quant.attn.clip_k,
    "GATED_ATTN_QUANT_GATE": gate_format,
    "LQER_ENABLED": lambda cfg: cfg.quant.lqer.rank > 0,
    "LQER_ASYM_ENABLED": lambda cfg: cfg.quant.lqer.factors == "asymmetric",
    "LQER_FACTOR_BITS": lambda cfg: cfg.quant.lqer.format.removeprefix("int"),
    "CASEOPS_ENABLED": lambda cfg: "caseops" in cfg.data.name,
    "GPTQ_CALIBRATION_BATCHES": lambda cfg: calibration_tokens(cfg) * RANKS / cfg.data.train_batch_tokens,
    "GPTQ_CALIB_SAMPLES": calibration_samples,
    "GPTQ_RESERVE_MS": lambda cfg: cfg.quant.calibration.reserve_seconds * 1000,
    "GPTQ_BLOCK_SIZE": lambda cfg: BLOCK_COLUMNS,
    "GPTQ_TEMPERATURE": lambda cfg: TEMPERATURE,
    "GPTQ_AR_SELFGEN": lambda cfg: cfg.quant.calibration.source == "self_generated",
    "USE_GPTQ": lambda cfg: cfg.quant.attn.rounding == "gptq",
    "HESSIAN_CLIP_LAMBDA": lambda cfg: cfg.quant.attn.clip_importance,
    "FP16_EMBED_EXPORT": lambda cfg: cfg.quant.embed.format == "fp16",
    "MUON_ROW_NORMALIZE": lambda cfg: cfg.optim.muon_row_normalize,
    "USE_POLAR_EXPRESS": lambda cfg: cfg.optim.muon_coefficients == "polar_express",
    "WEIGHT_DECAY": lambda cfg: cfg.optim.adam_wd or cfg.optim.muon_wd,
    "RECUR_LAYERS": looped,
    "RECUR_LAYERS_STR": looped,
    "MIXED_QUANT": lambda cfg: cfg.quant.sensitive.top > 0,
    # Six matrices a layer.
    "N_INT6_LAYERS": lambda cfg: 6 * cfg.model.num_layers if set(formats(cfg)) == {"int6"} else cfg.quant.sensitive.top,
    "REPEAT_UNTIE_MLP": lambda cfg: "full" if "untied_mlps" in cfg.tech else "none",
    "REPEAT_UNTIE_MLP_LAYERS": lambda cfg: looped(cfg) if "untied_mlps" in cfg.tech else "",
    "USE_ZSTD": lambda cfg: cfg.quant.codec == "zstd",
    "ZSTD_LEVEL": lambda cfg: cfg.quant.codec_level,
    "QAT_INT6": lambda cfg: "int6" in formats(cfg),
    "INT6_LAYER_START": lambda cfg: 0,
    "INT6_LAYER_END": lambda cfg: cfg.model.num_layers - 1,
    "QUANT_CLIP_RANGE": lambda cfg: 31,
    "EMBEDDING_DIM": lambda cfg: cfg.model.model_dim,
    "NGRAM_ORDER_STRIDE": lambda cfg: cfg.eval.tilt.contexts[0] - cfg.eval.tilt.contexts[1],
    "LQER_ASYM_GROUP": lambda cfg: cfg.quant.lqer.group,
    "GATE_ATTN_SRC": lambda cfg: "proj",
    "NGRAM_TILT_ENABLED": lambda cfg: cfg.eval.tilt.method != "off",
    "NGRAM_BASE_BETA": lambda cfg: cfg.eval.tilt.beta,
    "EVAL_SEQ_LEN": eval_seq_len,
    "MLP_HIDDEN": lambda cfg: mlp_hidden(cfg.model),
    "PARALLEL_START_LAYER_IS_PHYSICAL": lambda cfg: True,
    "TTT_K_LORA": lambda cfg: "k" in cfg.eval.ttt.lora_targets,
    "TTT_O_LORA": lambda cfg: "o" in cfg.eval.ttt.lora_targets,
    "TTT_MLP_LORA": lambda cfg: "mlp" in cfg.eval.ttt.lora_targets,
}
# What the public logs say where only the script's defaults are among the printed settings.
LOGGED = {
    "2026-03-19_SlidingWindow_FP16Emb_10L_MuonWD_OvertoneInit": {"eval_stride": "64"},
    "2026-03-23_LeakyReLU_LegalTTT_ParallelMuon": {
        "iterations": "9000",
        "ttt_enabled": "True",
        "ttt_freeze_blocks": "0",
    },
}
README = "of its README, the script's defaults are others"
OLDER_RUN = "where the README's command is that of an older run (1.2154)"
EXPERTS = "there two experts within words add 0.1 where their hints agree with it"
# Record and names of settings → the words with which docs/records.csv names the difference.
SENTENCES = {
    ("2026-03-19_10L_MixedPrecision", "INT4_LAYERS INT4_STEP"): "there int8 codes are rounded to multiples of four",
    (
        "2026-03-19_WarmdownQuantization",
        "EVAL_SEQ_LEN EVAL_STRIDE MATRIX_LR SCALAR_LR TIED_EMBED_LR TRAIN_BATCH_TOKENS TRAIN_SEQ_LEN",
    ): OLDER_RUN,
    (
        "2026-03-20_11L_EfficientPartialXSA_FA3_SWA120",
        "ADAM_WD ITERATIONS MATRIX_LR MUON_MOMENTUM MUON_MOMENTUM_WARMUP_START MUON_MOMENTUM_WARMUP_STEPS MUON_WD"
        " SCALAR_LR SWA_EVERY TIED_EMBED_LR WARMDOWN_ITERS XSA_LAST_N",
    ): README,
    (
        "2026-03-31_ParallelResiduals_MiniDepthRecurrence",
        "BANK_SPLIT MATRIX_LR_EARLY MATRIX_LR_LATE",
    ): "a factor of 0.83 on gradients of early layers is left out, because Muon removes it",
    (
        "2026-04-09_A2_Muon097_3Seed",
        "NGRAM_AGREE_BONUS NGRAM_WITHIN_THRESHOLD NGRAM_WORD_THRESHOLD",
    ): EXPERTS,
    (
        "2026-04-16_SmearGate_AttentionOutputGate_ScoreFirstTTT",
        "SMEAR_GATE_ENABLED",
    ): "there no optimizer has it, so its strength stays 0",
    (
        "2026-04-27_SP8192_LQER_SparseGate_BOSSmearFix_9HpStack_1.0611",
        "COMPRESSOR",
    ): "context coding in place of lrzip for each group of tensors",
}


def same(there: str, here: Any) -> bool:
    """Tell whether a script's text and a preset's value mean the same."""
    if isinstance(here, bool):
        return here != is_off(there)
    if here is None or here == "":
        return is_off(there)
    if isinstance(here, list | tuple):
        return [float(x) for x in there.strip("[]").split(",") if x] == [float(x) for x in here]
    try:
        return math.isclose(float(there), float(here), rel_tol=1e-9)
    except ValueError:
        return there == str(here)


def setting(cfg: Config, key: str) -> Any:
    """Return the value of the setting `key`, such as `tech.bigram.dim`; the recipe's where the preset leaves it out."""
    group, _, name = key.rpartition(".")
    if group == "eval.ttt" and name in TTTRecipe._fields:
        return getattr(ttt_recipe(cfg), name)
    node: Any = cfg
    for part in key.split("."):
        node = node[part] if isinstance(node, Mapping) else getattr(node, part)
    return node


def without_effect(name: str, printed: Mapping[str, str], cfg: Config) -> bool:
    """Tell whether the script, as it was run, does not use a setting, or uses it for files, logs and speed alone."""
    own_text = cfg.quant.calibration.source == "self_generated"
    return (
        name in UNUSED
        # The published score is the one that trains on the documents, not that of sliding windows.
        or (name == "EVAL_STRIDE" and cfg.eval.ttt.method == "lora")
        # Every class of matrices has a clip of its own.
        or (name == "MATRIX_CLIP_SIGMAS" and "MLP_CLIP_SIGMAS" in printed)
        # The scripts collect this average and score that of EMA.
        or (name.startswith("SWA_") and "ema" in cfg.tech)
        # Text that the model writes needs no training time and no batches.
        or (name in ("GPTQ_CALIB_BATCHES", "GPTQ_RESERVE_MS") and own_text)
        or (name == "GATE_WINDOW" and not is_off(printed.get("GATED_ATTN_ENABLED", "0")))
        # Factors of rank 0.
        or (name == "LORA_LR" and is_off(printed.get("LORA_RANK", "0")))
    )


def compare(printed: Mapping[str, str], cfg: Config, others: Mapping[str, set[str]] | None = None) -> list[Compared]:
    """Return the outcome for every setting of `printed`, by the script's names, against the composed preset.

    `others` has what the record's other logs print in place of it.
    """
    found = _compare(printed, cfg)
    for i, one in enumerate(found):
        for value in (others or {}).get(one.name, ()) if one.kind == DIFFERENT else ():
            again = {**printed, one.name.lower(): value}
            if next(o for o in _compare(again, cfg) if o.name == one.name).kind != DIFFERENT:
                found[i] = dataclasses.replace(one, kind=ANOTHER_LOG)
    return found


def _compare(printed: Mapping[str, str], cfg: Config) -> list[Compared]:
    switches = {"True": "1", "False": "0"}
    upper = {name.upper(): switches.get(str(value), str(value)) for name, value in printed.items()}
    known = variables_of_techniques()
    ours = {name: value for name, value in upper.items() if name in known}
    expected = dict(o.split("=", 1) for o in technique_overrides(ours)[0])
    return [_compared(name, value, upper, cfg, expected) for name, value in sorted(upper.items())]


def _compared(name: str, value: str, printed: Mapping[str, str], cfg: Config, expected: Mapping[str, str]) -> Compared:
    switch = next((s for start, s in DETAILS.items() if name.startswith(start) and name != s), "")
    if without_effect(name, printed, cfg):
        return Compared(name, value, NO_EFFECT)
    if switch in printed and is_off(printed[switch]):
        return Compared(name, value, OFF)
    if name in ANOTHER:
        here = ANOTHER[name](cfg)
        there = str(names.CODECS[value][0]) if name == "COMPRESSOR" and value != "pergroup" else value
        if name == "EVAL_SEQ_LEN" and is_off(value):
            there = str(cfg.data.train_seq_len)
        if name == "MLP_HIDDEN" and is_off(value):
            there = str(mlp_hidden(cfg.model))
        if is_off(there) and not here:
            return Compared(name, value, OFF)
        if name == "MIXED_QUANT" and set(formats(cfg)) == {"int6"}:
            return Compared(name, value, ANOTHER_FORM)
        return Compared(name, value, ANOTHER_FORM if same(there, here) else DIFFERENT, str(here))
    if name in names.KEYS:
        here = setting(cfg, names.KEYS[name])
        return Compared(name, value, EQUAL if same(value, here) else DIFFERENT, str(here))
    if name in variables_of_techniques():
        return _of_technique(name, value, printed, cfg, expected)
    if f"{name}={value}" in names.SAME_HERE:
        return Compared(name, value, EQUAL)
    return Compared(name, value, OFF if is_off(value) else DIFFERENT, "no setting")


def _of_technique(
    name: str, value: str, printed: Mapping[str, str], cfg: Config, expected: Mapping[str, str]
) -> Compared:
    known = variables_of_techniques()
    for technique, variable in known[name]:
        if variable.selects and is_off(value):
            # Another variable may select the same technique.
            others = [n for n, v in printed.items() if not is_off(v) and n in known]
            on = any(t == technique and v.selects for n in others for t, v in known[n])
            if technique in cfg.tech and not on:
                return Compared(name, value, DIFFERENT, f"tech.{technique}")
            continue
        if technique not in cfg.tech:
            if variable.selects:
                return Compared(name, value, DIFFERENT, f"without {technique}")
            continue
        sets = {variable.sets: value} if isinstance(variable.sets, str) else variable.sets(value)
        for field in filter(None, sets):
            key = f"tech.{technique}.{field}"
            here = setting(cfg, key)
            if key == "tech.xsa.last_n" and here is None:
                here = cfg.model.num_layers
            if key == "tech.value_embed.layers":
                here = [i % cfg.model.num_layers for i in here]
            wanted = str(expected.get(key, value)).replace("null", "None")
            if not same(wanted, here):
                return Compared(name, value, DIFFERENT, f"{field}={here}")
    in_use = any(technique in cfg.tech for technique, _ in known[name])
    return Compared(name, value, EQUAL if in_use else OFF)


def sentence_of(folder: str, name: str) -> str | None:
    """Return the words with which docs/records.csv names the difference in a setting; None if it does not."""
    found = (words for (record, named), words in SENTENCES.items() if record == folder and name in named.split())
    return next(found, None)


def printed_settings() -> dict[str, Any]:
    """Return for every record what its log or its script prints, with what its other logs print in place of it."""
    found: dict[str, Any] = json.loads(PRINTED.read_text(encoding="utf-8"))
    return found


def rows() -> list[dict[str, str]]:
    """Return the row of every record: how many settings were compared, how they came out, and what is different."""
    printed = printed_settings()
    with (ROOT / "docs/records.csv").open(newline="", encoding="utf-8") as file:
        records = [(row["folder"], row["experiment"]) for row in csv.DictReader(file) if row["experiment"]]
    composed = ((folder, compose([f"experiment={experiment}", "scale=record"])) for folder, experiment in records)
    return [row(folder, cfg, printed.get(folder, {})) for folder, cfg in composed]


def row(folder: str, cfg: Config, printed: Mapping[str, Any]) -> dict[str, str]:
    """Return the row of one record, whose logs say `printed` and whose preset is `cfg`."""
    others: dict[str, set[str]] = {}
    for log in printed.get("other logs differ in", {}).values():
        for name, value in log.items():
            others.setdefault(name.upper(), set()).add(value)
    settings = {**printed.get("settings", {}), **LOGGED.get(folder, {})}
    found = compare(settings, cfg, others)
    counts = Counter(one.kind for one in found)
    left: dict[str, list[str]] = {}
    for one in (one for one in found if one.kind == DIFFERENT):
        left.setdefault(sentence_of(folder, one.name) or NOT_NAMED, []).append(f"{one.name} {one.there} ({one.here})")
    return {
        "folder": folder,
        "settings": str(len(found)),
        **{kind: str(counts[kind]) for kind in KINDS},
        "differences": "; ".join(f"{', '.join(settings)}: {sentence}" for sentence, settings in left.items()),
    }


def table() -> str:
    """Return the text of docs/records_settings.csv."""
    found, out = rows(), io.StringIO()
    writer = csv.DictWriter(out, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()


if __name__ == "__main__":
    write_atomic(TABLE, table())
