"""Plot of a run: losses over seconds of training, with the learning-rate multiplier below."""

from __future__ import annotations

from typing import Any

from golf.run.folder import RunFolder
from golf.run.result import Result


def draw_curves(folder: RunFolder, result: Result) -> None:
    """Draw the events of the run and write them to its curves.png, unless no step was trained."""
    events = list(folder.events())
    if not (train := [e for e in events if e["event"] == "train"]):
        return
    validation = [e for e in events if e["event"] == "validation"]
    # Without pyplot, which takes three times as long to import.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5))
    # Fixed margins, because matplotlib's own layout draws everything twice.
    figure.subplots_adjust(left=0.09, right=0.985, top=0.94, bottom=0.095, hspace=0.07)
    losses, rate = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
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
    rate.set_xlabel("seconds of training")
    rate.grid(alpha=0.3)
    figure.savefig(folder.curves, dpi=130)


def _plot(axes: Any, events: list[dict[str, Any]], key: str, **style: Any) -> None:
    axes.plot([e["train_seconds"] for e in events], [e[key] for e in events], **style)
