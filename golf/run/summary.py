"""The summaries that a run prints before it starts and after it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from golf.bits import Score
from golf.run.core_time import lacked_cores
from golf.run.identity import variant_id
from golf.run.result import OK, Result
from golf.settings.config import Config
from golf.words import counted, text_width

PLAIN_WIDTH = 140  # width of a table in a file or a pipe, in characters


def print_plan(cfg: Config, choices: Mapping[str, str], remarks: Sequence[str]) -> None:
    """Print name, variant, chosen groups and techniques, and `remarks` on chosen defaults and doubtful settings."""
    print(f"{cfg.name}, variant {variant_id(cfg)}, seed {cfg.seed}")
    print("  " + " ".join(f"{group}={option}" for group, option in choices.items()))
    if cfg.tech:
        print(f"  tech=[{','.join(cfg.tech)}]")
    for line in remarks:
        print(f"  {line}")


def print_result(result: Result, folder: Path) -> None:
    """Print a table: state, scores before and after quantization, bytes and seconds against their caps, files."""
    table = Table(title=f"{result.name} · seed {result.seed}", title_justify="left", show_header=False)
    table.add_column("what")
    # Paths are folded and not cut, so that they can be copied.
    table.add_column("value", overflow="fold")
    table.add_row("state", result.state if result.state == OK else f"{result.state}: {result.reason}")
    if result.last_val_bpb is not None:
        table.add_row("last validation", f"{result.last_val_bpb:.4f} bits per byte at step {result.last_val_step}")
    table.add_row("before quantization", _score(result.pre_quant))
    table.add_row("from the artifact", _score(result.post_quant))
    for score in result.artifact_scores[1:]:
        table.add_row(f"from the artifact, {score.how}", _score(score))
    table.add_row("bytes", _bytes(result))
    table.add_row("training", _training(result))
    table.add_row("data", f"{result.data_name} {result.data_fingerprint}")
    for warning in result.warnings:
        table.add_row("note", warning)
    table.add_row("files", _shown(folder))
    console().print(table)


def console(plain_width: int = PLAIN_WIDTH) -> Console:
    """Return a console as wide as the terminal or `COLUMNS`; in a file or a pipe it has `plain_width` characters."""
    return Console(highlight=False, markup=False, width=text_width(plain_width))


def _score(score: Score | None) -> str:
    if score is None:
        return "–"
    return f"{score.val_bpb:.4f} bits per byte (loss {score.val_loss:.4f} nats per token)"


def _bytes(result: Result) -> str:
    if result.artifact_bytes is None or result.cap_bytes is None:
        return "–"
    if result.code_bytes is None:
        return f"{result.artifact_bytes:,} artifact, and code of unknown size"
    total = result.artifact_bytes + result.code_bytes
    # A cap of zero has no share.
    share = f"{total / result.cap_bytes:.1%} of " if result.cap_bytes else "cap "
    return f"{result.artifact_bytes:,} artifact + {result.code_bytes:,} code = {total:,} ({share}{result.cap_bytes:,})"


def _training(result: Result) -> str:
    budget = f" of {result.budget_train_seconds:g} s" if result.budget_train_seconds else " s, no cap"
    pace = f", {result.step_ms:.1f} ms each" if result.step_ms else ""
    steps, tokens = counted(result.steps, "step"), counted(result.tokens_seen, "token")
    share = f", with {result.core_share:.2f} of its cores" if lacked_cores(result.core_share, "training") else ""
    return f"{result.train_seconds:.1f}{budget}{share}, {steps}{pace}, {tokens}"


def _shown(path: Path) -> str:
    """Return the path relative to the current folder if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
