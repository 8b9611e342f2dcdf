"""Plot of a run: losses over seconds of training, with the learning-rate multiplier below."""

from __future__ import annotations

import io
from typing import Any

from golf.files import write_atomic
from golf.run.folder import RunFolder
from golf.run.result import Result

MOST_READINGS = 6  # numbers of techniques that are drawn


def draw_curves(folder: RunFolder, result: Result) -> None:
    """Draw the events of the run and write them to its curves.png, unless no step was trained."""
    events = list(folder.events())
    if not (train := [e for e in events if e["event"] == "train"]):
        return
    validation = [e for e in events if e["event"] == "validation"]
    # Without pyplot, which takes three times as long to import.
    from matplotlib.figure import Figure

    own = list(dict.fromkeys(key for event in train for key in event.get("readings", {})))[:MOST_READINGS]
    figure = Figure(figsize=(8, 5.5 + 1.1 * len(own)))
    # Fixed margins, because matplotlib's own layout draws everything twice.
    figure.subplots_adjust(left=0.09, right=0.985, top=0.94, bottom=0.095, hspace=0.07)
    losses, rate, *rows = figure.subplots(2 + len(own), 1, sharex=True, height_ratios=(4, 1, *[1] * len(own)))
    for axes, key in zip(rows, own, strict=True):
        told = [event | {key: event["readings"][key]} for event in train if key in event.get("readings", {})]
        _plot(axes, told, key, color="#7a4f9c")
        axes.set_ylabel(key.replace("/", "\n"), fontsize=8)
        axes.grid(alpha=0.3)
    _plot(losses, train, "train_loss", label="training", color="#9aa7b5", linewidth=1.0)
    _plot(losses, validation, "val_loss", label="validation", color="#1f5fa8", marker="o", markersize=4)
    if result.post_quant:
        losses.axhline(result.post_quant.val_loss, color="#c2452d", linestyle="--", linewidth=1.0)
        label = f"artifact, {result.post_quant.val_bpb:.4f} bits per byte"
        losses.plot([], [], color="#c2452d", linestyle="--", label=label)
    losses.set_ylabel("loss (nats per token)")
    losses.legend(frameon=False)
    losses.grid(alpha=0.3)
    losses.set_title(f"{result.name}, seed {result.seed}: {result.state}", loc="left")
    _plot(rate, train, "lr_multiplier", color="#4c8055")
    rate.set_ylabel("LR multiplier")
    rate.set_ylim(0, 1.08)
    (rows or [rate])[-1].set_xlabel("seconds of training")
    rate.grid(alpha=0.3)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=130)
    # A follower may be copying the folder.
    write_atomic(folder.curves, picture.getvalue())


def _plot(axes: Any, events: list[dict[str, Any]], key: str, **style: Any) -> None:
    axes.plot([e["train_seconds"] for e in events], [e[key] for e in events], **style)
