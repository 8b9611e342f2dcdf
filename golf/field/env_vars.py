"""The public scripts' environment variables as overrides of this configuration.

Public experiments are exchanged as command lines: `MATRIX_LR=0.06 … torchrun … train_gpt.py`. `translate` returns the
overrides of the same experiment, the variables without effect in those scripts, and the unknown ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping

from golf.errors import GolfError
from golf.field import env_names as names
from golf.field.env_techniques import is_off, is_zero, technique_overrides, variables_of_techniques
from golf.field.translation import Structure, Translation, complete
from golf.settings.quoting import quoted

SEPARATORS = ";&|<>\n"  # of commands and redirections in a shell
_REDIRECTS = re.compile(r"[;&|\n]*[<>][;&|<>\n]*")
_SCRIPT = re.compile(r"(?:.*/)?train\w*\.py")
_ASSIGNMENT = re.compile(r"(?:\$env:)?([A-Za-z_]\w*)=(.*)", re.DOTALL)  # PowerShell writes `$env:` before the name
_PROCESSES = re.compile(r"--(?:nproc[-_]per[-_]node|nnodes)=|--export=.*=")  # processes, or variables that srun sets


def translate(
    command_line: str,
    *,
    unread: Collection[str] = (),
    declared: Mapping[str, str | None] | None = None,
    structure: Structure | None = None,
) -> Translation:
    """Return the translation of a command line: its assignments and torchrun's number of processes.

    With the script that the command starts, `declared` are its variables with their defaults, `unread` are those that
    it never uses, and `structure` is what it has without a variable. Raises `GolfError` if a quote is not closed, if a
    value is a variable of the shell, or if several scripts are started.
    """
    result = Translation()
    given = result.given
    for word in _words(command_line, result):
        if match := re.fullmatch(r"--(nproc[-_]per[-_]node|nnodes)=(\d+)", word):
            setting = "nodes" if match[1] == "nnodes" else "nproc"
            result.overrides += [] if word == "--nnodes=1" else [f"launch.{setting}={match[2]}"]
        elif _PROCESSES.match(word):
            result.unknown.append(word)
        elif match := _ASSIGNMENT.fullmatch(word):
            name, value = match[1], match[2]
            if "$" in value and not names.MACHINE.fullmatch(name):
                raise GolfError(f"Only a shell knows the value in {word}: write the value itself.")
            if name in unread:
                result.without_effect.append(f"{name}={value} (the script declares it and never reads it)")
            elif declared is not None and name not in declared and not names.MACHINE.fullmatch(name):
                result.without_effect.append(f"{name}={value} (the script does not have it)")
            else:
                given[name] = value
                _assign(name, value, result)
    structure = structure or Structure()
    declared = declared or {}
    known = _known_defaults(declared, given, unread)
    for name, value in (structure.variables | known).items():
        _assign(name, value, result)
    result.inexpressible = _without_counterpart(declared, given, {*given, *known, *unread})
    is_sgd = result.ttt and not (result.lora or result.april_lora)
    if is_sgd and declared and "TTT_CHUNK_TOKENS" not in declared:
        # All known scripts that train on scored text by SGD declare it. Others take other steps.
        result.ttt, result.unknown = None, [*result.unknown, "TTT_ENABLED=1"]
    complete(result, structure)
    if is_off(result.techniques.get("NUM_LOOPS", "1")):
        # A loop of no additional pass is none, wherever it begins.
        result.techniques |= {"NUM_LOOPS": "", "ENABLE_LOOPING_AT": ""}
    overrides, idle = technique_overrides(result.techniques, structure.techniques)
    # The first override lists the techniques, those without a setting, too.
    chosen = set(overrides[0].removeprefix("tech=[").removesuffix("]").split(",")) if overrides else set()
    result.overrides += overrides + [o for o in structure.settings if o.split(".")[1] in chosen]
    result.unknown += [text for text in idle if text.partition("=")[0] not in known]
    result.idle_defaults = [text for text in idle if text.partition("=")[0] in known]
    return result


def _known_defaults(
    declared: Mapping[str, str | None], given: Mapping[str, str], unread: Collection[str]
) -> dict[str, str]:
    """Return the script's defaults that have a counterpart here, without what belongs to a switch that is off."""
    defaults = {name: value for name, value in declared.items() if value and name not in (*given, *unread)}
    off = _off({**defaults, **given})
    techniques = variables_of_techniques()
    return {
        name: value
        for name, value in defaults.items()
        if (name in names.KEYS or name in names.SWITCHES or name in techniques or name in names.OTHERS)
        and name not in names.NOT_THE_MODEL
        and not (off and name.startswith(off) and name != names.GATES)
    }


def _off(values: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the beginnings of the names of what the switches among `values` have off."""
    return tuple(
        f"{of}_"
        for name, value in values.items()
        if value is not None and is_off(value) and (of := names.switched_by(name))
    )


def _without_counterpart(
    declared: Mapping[str, str | None], given: Mapping[str, str], settled: Collection[str]
) -> list[str]:
    """Return the variables with a default that says something and has no counterpart here, as NAME=default.

    What belongs to a switch that is off says nothing.
    """
    techniques, off = variables_of_techniques(), _off({**declared, **given})
    return [
        f"{name}={value}"
        for name, value in declared.items()
        if value
        and not is_off(value)
        and name not in settled
        and not (off and name.startswith(off))
        and name not in names.OFF_AT_ZERO
        and name not in techniques
        and name not in names.KEYS
        and f"{name}={value}" not in names.SAME_HERE
        and not (names.NOT_SETTINGS.fullmatch(name) or names.MACHINE.fullmatch(name))
        and name not in names.NOT_THE_MODEL
    ]


def _words(command_line: str, result: Translation) -> list[str]:
    """Return the words of a command line up to its script.

    Separators of commands and the files of redirections are left out. Arguments of the script and files of variables
    go to `result.unknown`, variables that the shell keeps to itself to `result.without_effect`.
    """
    # Public commands go on over several lines by a backslash at the end.
    line = re.sub(r"\\\r?\n", " ", command_line)
    # torchrun accepts its options with a space as well. A digit before `>` is the number of a stream.
    line = re.sub(r"(?<=\s)\d(?=>)", "", re.sub(r"(--nproc[-_]per[-_]node|--nnodes)\s+", r"\1=", line))
    lexer = shlex.shlex(line, posix=True, punctuation_chars=SEPARATORS)
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        tokens = list(lexer)
    except ValueError as error:
        raise GolfError(f"The command line cannot be read ({error}): check its quotes.") from error
    commands: list[list[str]] = [[]]
    for before, word in zip(["", *tokens], tokens, strict=False):
        if set(word) <= set(SEPARATORS):
            commands += [] if set(word) & set("<>") else [[]]
        elif any(_SCRIPT.fullmatch(earlier) for earlier in commands[-1]):
            result.unknown += [] if _REDIRECTS.fullmatch(before) else [word]
        elif not _REDIRECTS.fullmatch(before):
            commands[-1].append(word)
    words = [word for command in commands for word in command]
    if len(scripts := [word for word in words if _SCRIPT.fullmatch(word)]) > 1:
        raise GolfError(f"The command line starts {len(scripts)} scripts: translate one command at a time.")
    if "=" in words:
        raise GolfError("The command line has a = with spaces around it: write NAME=value.")
    return _passed_on(commands, result) if scripts else words


def _passed_on(commands: list[list[str]], result: Translation) -> list[str]:
    """Return the words of `commands` without assignments that the shell keeps to itself or takes back."""
    words: list[str] = []
    exports_all = any(command[:2] == ["set", "-a"] for command in commands)
    exported = {word.partition("=")[0] for command in commands if command[:1] == ["export"] for word in command}
    for command in commands:
        if command[:1] == ["unset"]:
            words = [word for word in words if word.partition("=")[0] not in command]
        elif command[:1] in (["source"], ["."]):
            # That of a virtual environment sets nothing of the experiment.
            result.unknown += [] if command[-1].endswith("activate") else [" ".join(command)]
        elif exports_all or not all(_ASSIGNMENT.fullmatch(word) for word in command):
            words += command
        else:
            passed = [word for word in command if word.startswith("$env:") or word.partition("=")[0] in exported]
            words += passed
            unseen = [word for word in command if word not in passed]
            result.without_effect += [f"{word} (not exported: write `export` before it)" for word in unseen]
    return words


def _assign(name: str, value: str, result: Translation) -> None:
    off = is_off(value)
    result.lora |= name in names.LORA_ONLY
    if name in names.APRIL_LORA:
        result.april_lora[name] = value
    result.assigned[name] = value
    if name in names.FRONTIER:
        result.frontier[name] = value
    if name in ("TTT_WARM_START_A", "TTT_MASK", *names.LORA_TARGETS, *names.QUANT, *names.FRONTIER):
        return
    if name in variables_of_techniques():
        result.techniques[name] = value
    elif name in names.SWITCHES:
        result.overrides += [] if off else [names.SWITCHES[name]]
    elif name == names.HESSIAN_CLIP and not off:
        clips = [f"quant.{kind}.clip_importance={value}" for kind in ("attn", "mlp")]
        result.overrides += ["quant=sdclip_gptq", *clips]
    elif name == "TTT_ENABLED":
        result.ttt = not off
    elif name == "TIE_EMBEDDINGS":
        result.overrides.append(f"{names.KEYS[name]}={'false' if is_zero(value) else 'true'}")
    elif name == "COMPRESSOR" and value in names.CODECS:
        codec, level = names.CODECS[value]
        result.overrides += [f"quant.codec={codec}", f"quant.codec_level={level}"]
    elif name == names.GATES:
        result.overrides += [names.FP16_GATES] if off else []
    elif name == "EMBED_BITS":
        result.overrides.append(f"quant.embed.format=int{quoted(value)}")
    elif name == "SHARD_ORDER":
        if shards := re.findall(r"[^,\s]+", value):
            result.overrides.append(f"data.shard_order=[{','.join(map(quoted, shards))}]")
    elif name in names.KEYS and not (name in names.ABSENT_AT_ZERO and off):
        result.overrides.append(f"{names.KEYS[name]}={quoted(value)}")
    elif name in names.NEVER_READ:
        result.without_effect.append(f"{name}={value} (never read)")
    elif name in names.NEUTRAL:
        result.without_effect += [] if off else [f"{name}={value} ({names.NEUTRAL[name]})"]
    elif name in names.ABSENT_AT_ZERO or (name in names.OFF_AT_ZERO and off):
        return
    elif names.MACHINE.fullmatch(name):
        result.machine.append(f"{name}={value}")
    else:
        result.unknown.append(f"{name}={value}")
