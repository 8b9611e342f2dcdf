"""A public script's command line as overrides, and what several of its variables mean together."""

from __future__ import annotations

from dataclasses import dataclass, field

from golf.errors import GolfError
from golf.field.env_frontier import frontier_overrides
from golf.field.env_names import APRIL_DEFAULTS, LATE_QAT, LORA_TARGETS, MASKS
from golf.field.env_techniques import is_off, is_zero
from golf.settings.quoting import quoted

BASE = ("model=9l", "scale=record")  # overrides for the public baseline's defaults
LQER_QUANT, SDCLIP = "quant=sdclip_lqer_asym", "quant=sdclip_gptq"
VOCABULARIES = ("4096", "8192")  # vocabularies of FineWeb's other data sets
SGD_ON, LORA_ON = "eval.ttt.method=sgd", "eval.ttt.method=lora"
APRIL_BATCH_TOKENS = 786_432
SGD_STRIDE = 64  # default of EVAL_STRIDE in the scripts that have TTT_ENABLED, in tokens
NEVER_RAN = (
    "public scripts up to PR #593 compiled late QAT away, so it never ran; whether this one does cannot be read; "
    "tech.fake_quant.lr_threshold runs it"
)
COLLECTED_ONLY = "beside EMA the public scripts collect this average and do not use it"


@dataclass
class Structure:
    """Settings of what a script always has, without a variable to switch it."""

    variables: dict[str, str] = field(default_factory=dict)  # values to read as if the command had set them
    overrides: list[str] = field(default_factory=list)
    techniques: list[str] = field(default_factory=list)  # techniques that no variable selects
    settings: list[str] = field(default_factory=list)  # overrides of techniques, good only where these are selected
    missing: list[str] = field(default_factory=list)  # parts that are there and are not among the overrides
    loads_swa: bool = False  # the average by SWA is used, also beside EMA


@dataclass
class Translation:
    """Overrides for golf/train.py, and the variables that have none."""

    overrides: list[str] = field(default_factory=lambda: list(BASE))
    given: dict[str, str] = field(default_factory=dict)  # variables of the command line that the script reads
    unknown: list[str] = field(default_factory=list)  # NAME=value of variables without a counterpart here
    without_effect: list[str] = field(default_factory=list)  # NAME=value (reason) of variables without effect upstream
    machine: list[str] = field(default_factory=list)  # NAME=value of variables about the machine, not the experiment
    techniques: dict[str, str] = field(default_factory=dict)  # variables of techniques, translated together at the end
    idle_defaults: list[str] = field(default_factory=list)  # NAME=value of defaults for techniques not chosen
    inexpressible: list[str] = field(default_factory=list)  # NAME=default of variables that the script reads, not known
    assigned: dict[str, str] = field(default_factory=dict)  # all variables, also defaults of the script
    ttt: bool | None = None  # value of TTT_ENABLED; None if it is not set
    lora: bool = False  # True if a variable of the scripts with low-rank test-time training is set
    april_lora: dict[str, str] = field(default_factory=dict)  # variables of those from 10 April on
    frontier: dict[str, str] = field(default_factory=dict)  # variables of those from 28 April on


def complete(result: Translation, structure: Structure) -> None:
    """Add the overrides that follow from several variables, and name those that others leave without effect."""
    _complete_data(result)
    _complete_calibration(result)
    _complete_quant(result, structure)
    _complete_ttt(result)
    _complete_frontier(result)
    _settle_late_qat(result)
    _settle_averages(result, structure)


def _complete_data(result: Translation) -> None:
    """Select FineWeb's data set of the vocabulary, unless another one is selected."""
    sizes = {override.partition("=")[2] for override in result.overrides if override.startswith("data.vocab_size=")}
    if not any(override.startswith(("data=", "data.path=")) for override in result.overrides):
        result.overrides[:0] = [f"data=fineweb_sp{size}" for size in sizes if size in VOCABULARIES]


def _complete_calibration(result: Translation) -> None:
    """Set the tokens of calibration: the scripts count batches of one of eight ranks."""
    sizes = [o.partition("=")[2] for o in result.overrides if o.startswith("data.train_batch_tokens=")]
    batch = int(sizes[-1]) if sizes and sizes[-1].isdigit() else APRIL_BATCH_TOKENS
    if (batches := result.assigned.get("GPTQ_CALIBRATION_BATCHES", "")).isdigit():
        result.overrides.append(f"quant.calibration.tokens={int(batches) * batch // 8}")


def _complete_ttt(result: Translation) -> None:
    """Select the method of test-time training, and add the sliding windows of the scripts with SGD."""
    overrides = result.overrides
    if result.april_lora and result.ttt is not False:
        _complete_april_lora(result)
        return
    # The first script with LoRA has no switch; in later ones TTT_ENABLED=0 switches it off.
    if result.lora and result.ttt is not False:
        overrides.append(LORA_ON)
    elif result.ttt:
        overrides.append(SGD_ON)
        if not any(o.startswith("eval.stride=") for o in overrides):
            overrides.append(f"eval.stride={SGD_STRIDE}")


def _complete_quant(result: Translation, structure: Structure) -> None:
    """Select the quantization of the scripts from 5 April on, and what they always have, before its settings."""
    base = list(structure.overrides)
    enabled = result.assigned.get("LQER_ENABLED")
    if LQER_QUANT in base and enabled is not None and is_off(enabled):
        base[base.index(LQER_QUANT)] = SDCLIP
    elif enabled is not None and not is_off(enabled) and LQER_QUANT not in base:
        base.insert(0, LQER_QUANT)
    if not any(o.startswith("quant=") for o in [*base, *result.overrides]) and any(
        override.startswith(("quant.embed.clip_k=", "quant.mlp.clip_k=")) for override in result.overrides
    ):
        base.insert(0, SDCLIP)
    if LQER_QUANT in base and is_off(result.assigned.get("LQER_ASYM_ENABLED", "1")):
        bits = result.assigned.get("LQER_FACTOR_BITS", "4")
        result.overrides += ["quant.lqer.factors=row", f"quant.lqer.format=int{quoted(bits)}"]
    # A quantization that a switch selects, such as that of the first scripts, takes the place of the script's own.
    if any(override.startswith("quant=") for override in result.overrides):
        base = [o for o in base if not o.startswith("quant")]
    result.overrides[:0] = base


def _complete_april_lora(result: Translation) -> None:
    """Put the defaults of the scripts from 10 April on in front, and their switches behind."""
    given = {override.partition("=")[0] for override in result.overrides}
    result.overrides[:0] = [f"{key}={value}" for key, value in APRIL_DEFAULTS.items() if key not in given]
    off = {LORA_TARGETS[name] for name, value in result.april_lora.items() if name in LORA_TARGETS and is_off(value)}
    if mask := result.april_lora.get("TTT_MASK"):
        off |= MASKS.get(mask, set())
        result.unknown += [] if mask in MASKS else [f"TTT_MASK={mask}"]
    if off:
        left = [target for target in ("q", "k", "v", "o", "mlp", "head") if target not in off]
        result.overrides.append(f"eval.ttt.lora_targets=[{','.join(left)}]")
    if is_zero(result.april_lora.get("TTT_WARM_START_A", "1")):
        result.overrides.append("eval.ttt.lora_a=drawn")


def _complete_frontier(result: Translation) -> None:
    """Add what the variables from 28 April on mean together."""
    rates = [float(o.partition("=")[2]) for o in result.overrides if o.startswith("eval.ttt.lr=")]
    try:
        overrides, unknown = frontier_overrides(result.frontier, *rates[-1:])
    except ValueError as error:
        raise GolfError(f"{result.frontier} cannot be read ({error}): correct the values.") from error
    result.overrides += overrides
    result.unknown += unknown


def _settle_late_qat(result: Translation) -> None:
    """Name the thresholds of late QAT as without effect, unless soft rounding is selected and they are its own."""
    if not is_off(result.techniques.get("SOFT_ROUND_QAT", "0")):
        return
    for name in [name for name in result.techniques if name in LATE_QAT]:
        if not is_off(value := result.techniques.pop(name)):
            result.without_effect.append(f"{name}={value} ({NEVER_RAN})")


def _settle_averages(result: Translation, structure: Structure) -> None:
    """Name the variables of SWA as without effect beside EMA: most scripts collect its average and score EMA's."""
    if any(is_off(result.techniques.get(name, "0")) for name in ("EMA_ENABLED", "SWA_ENABLED")):
        return
    for name in [name for name in result.techniques if name.startswith("SWA_")]:
        if structure.loads_swa:
            result.unknown.append(f"{name}={result.techniques.pop(name)}")
            continue
        result.without_effect.append(f"{name}={result.techniques.pop(name)} ({COLLECTED_ONLY})")
