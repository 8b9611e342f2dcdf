"""Plots of findings as SVG or PNG: scores, differences, bytes and training curves."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, ScalarFormatter

from golf.report import plot_parts as parts
from golf.report.findings import Findings, mean_interval, score_title, swept_numbers
from golf.report.rows import RunRow, is_number
from golf.report.variants import SCORES, Variant

DOTS_PER_INCH = 160
MOST_ROWS, MOST_CURVES, MOST_POINTS = 30, 40, 200  # variants, runs, points of a curve


def pictures(findings: Findings) -> list[tuple[str, str, bytes]]:
    """Return name, caption and PNG of every plot for which the findings have data."""
    found = []
    with matplotlib.rc_context(parts.STYLE):
        for name, caption, figure in _drawn(findings):
            out = io.BytesIO()
            figure.savefig(out, format="png", dpi=DOTS_PER_INCH)
            found.append((name, caption, out.getvalue()))
    return found


def _drawn(findings: Findings) -> Iterator[tuple[str, str, Figure]]:
    plots = {"scores": _scores, "differences": _differences, "bytes": _bytes, "curves": _curves}
    for name, plot in plots.items():
        if drawn := plot(findings):
            yield name, *drawn


def _scores(findings: Findings) -> tuple[str, Figure] | None:
    """Draw the score of every seed and variant, over the swept number if there is one, else one row a variant."""
    shown = [v for v in findings.variants if v.scores(findings.score)]
    if not shown:
        return None
    bars = f"Bars: {findings.rules.confidence:.0%} interval of the mean."
    numbers = swept_numbers(findings, shown)
    if numbers:
        figure, axes = parts.new_figure(3.5)
        _score_over_value(axes, findings, shown, numbers)
        parts.verdict_legend(figure, findings, shown, [Line2D([], [], label="seed", **parts.SEEDS)])
        return f"{_capital(score_title(findings))} against {findings.study.swept[0]}. {bars}", figure
    cut, left_out = _cut(shown, findings)
    figure, axes = parts.new_figure(parts.figure_height(findings, cut))
    for y, variant in enumerate(cut):
        for scores, style in _score_marks(findings, variant):
            axes.plot(scores, [y] * len(scores), **style)
    parts.name_rows(axes, findings, cut)
    axes.set_xlabel(parts.score_label(findings))
    parts.verdict_legend(figure, findings, cut, [Line2D([], [], label="seed", **parts.SEEDS)])
    return f"{_capital(score_title(findings))} of the variants. {bars}{left_out}", figure


def _score_marks(findings: Findings, variant: Variant) -> Iterator[tuple[Sequence[Any], dict[str, Any]]]:
    """Yield scores of a variant with the style that they are drawn in: seeds, the interval of the mean, the mean."""
    colour = parts.verdict_colour(findings, variant)
    yield variant.scores(findings.score), parts.SEEDS
    yield mean_interval(findings, variant), {"color": colour, "linewidth": 1.6}
    yield [variant.mean(findings.score)], {"color": colour, **parts.MEAN}


def _score_over_value(axes: Axes, findings: Findings, shown: Sequence[Variant], numbers: dict[str, float]) -> None:
    for variant in shown:
        for scores, style in _score_marks(findings, variant):
            axes.plot([numbers[variant.id]] * len(scores), scores, **style)
    ordered = sorted(shown, key=lambda v: numbers[v.id])
    means: list[Any] = [v.mean(findings.score) for v in ordered]
    axes.plot([numbers[v.id] for v in ordered], means, color=parts.GREY, linewidth=0.8, zorder=0)
    positions = sorted(set(numbers.values()))
    # A wide range of positive values was nearly always chosen on a logarithmic scale.
    if positions[0] > 0 and positions[-1] / positions[0] >= 4:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    axes.set_xticks(parts.ticks_apart(positions, axes.get_xscale() == "log"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(findings.study.swept[0])
    axes.set_ylabel(parts.score_label(findings, "\n"))
    parts.plain_numbers(axes.yaxis)


def _differences(findings: Findings) -> tuple[str, Figure] | None:
    """Draw a forest plot: the difference to the reference with its interval, one row a variant."""
    shown = [v for v in findings.variants if (w := findings.verdicts.get(v.id)) and w.difference_bpb is not None]
    if not shown:
        return None
    cut, left_out = _cut(shown, findings)
    figure, axes = parts.new_figure(parts.figure_height(findings, cut))
    axes.axvline(0.0, color=parts.BLUE, linewidth=1.0)
    untested: Any = {**parts.MEAN, "marker": "o", "markerfacecolor": "white", "color": parts.GREY}
    for y, variant in enumerate(cut):
        verdict, style = findings.verdicts[variant.id], untested
        if verdict.comparison:
            style = {**parts.MEAN, "color": parts.verdict_colour(findings, variant)}
            bounds = verdict.comparison.interval(findings.rules.confidence)
            axes.plot(bounds, [y, y], color=style["color"], linewidth=1.6)
        axes.plot([verdict.difference_bpb or 0.0], [y], **style)
    parts.name_rows(axes, findings, cut)
    axes.set_xlabel("difference in bits per byte; left is better")
    besides = [Line2D([], [], color=parts.BLUE, linewidth=1.0, label="reference")]
    if any(findings.verdicts[v.id].comparison is None for v in cut):
        besides.append(Line2D([], [], label="no test possible", **untested))
    tested = [v for v in cut if findings.verdicts[v.id].comparison]
    parts.verdict_legend(figure, findings, tested, besides)
    caption = f"Difference to {findings.reference_name}, {findings.rules.confidence:.0%} intervals.{left_out}"
    return caption, figure


def _bytes(findings: Findings) -> tuple[str, Figure] | None:
    """Draw the score of every run over the bytes of its artifact and code."""
    field = SCORES[findings.score]
    shown = [v for v in findings.variants if any(_has(r, field, "total_bytes") for r in v.rows)]
    if not shown:
        return None
    figure, axes = parts.new_figure(3.6)
    colours = parts.variant_colours(findings, shown)
    # The best variants are drawn last and so on top.
    for variant in reversed(shown):
        points = [(r.total_bytes or 0, getattr(r, field)) for r in variant.rows if _has(r, field, "total_bytes")]
        x, y = [point[0] / 1e6 for point in points], [point[1] for point in points]
        axes.plot(x, y, "o", color=colours.get(variant.id, parts.GREY), markersize=4.5, alpha=0.85)
    caps = sorted({row.cap_bytes for v in shown for row in v.rows if row.cap_bytes})
    for cap in caps:
        axes.axvline(cap / 1e6, color=parts.BLACK, linestyle="--", linewidth=1.0)
    axes.set_xlabel("artifact + code (MB of 1,000,000 bytes)")
    axes.set_ylabel(parts.score_label(findings, "\n"))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    parts.plain_numbers(axes.xaxis)
    parts.plain_numbers(axes.yaxis)
    cap_line = Line2D([], [], color=parts.BLACK, linestyle="--", linewidth=1.0, label="cap")
    parts.variant_legend(figure, findings, shown, colours, [cap_line] if caps else [])
    limit = f" Dashed: the cap of {', '.join(f'{cap:,}' for cap in caps)} bytes." if caps else ""
    return f"Bytes against {score_title(findings)}, one dot a run.{limit}", figure


def _curves(findings: Findings) -> tuple[str, Figure] | None:
    """Draw the training loss of every run over its training seconds."""
    colours = parts.variant_colours(findings, findings.variants)
    wanted = [v for v in findings.variants if v.id in colours]
    drawn = [(v, curve) for v in wanted for row in v.rows if len(curve := _curve(row)) > 1][:MOST_CURVES]
    if not drawn:
        return None
    figure, axes = parts.new_figure(3.6)
    # The best variants are drawn last and so on top.
    for variant, curve in reversed(drawn):
        x, y = [point[0] for point in curve], [point[1] for point in curve]
        axes.plot(x, y, color=colours[variant.id], linewidth=1.0, alpha=0.85)
    # The first tenth of a curve falls so far that it would flatten the rest.
    losses = sorted(loss for _, curve in drawn for _, loss in curve[len(curve) // 10 :])
    room = 0.05 * (losses[-1] - losses[0]) or 0.1
    axes.set_ylim(losses[0] - room, losses[-1] + room)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("training loss (nats per token)")
    parts.plain_numbers(axes.yaxis)
    parts.variant_legend(figure, findings, [v for v in wanted if any(v is other for other, _ in drawn)], colours)
    hidden = len(findings.variants) - len(wanted)
    rest = f" The best {len(wanted)} variants; {hidden} more are in the table." if hidden else ""
    return f"Training loss over the clock, one line a run.{rest}", figure


def _curve(row: RunRow) -> list[tuple[float, float]]:
    """Return (seconds, training loss) of an own run, at most `MOST_POINTS` of them; nothing for an imported run."""
    try:
        lines = (row.path / "metrics.jsonl").read_text().splitlines() if row.path else []
        events = [json.loads(line) for line in lines if line.startswith('{"event": "train"')]
        points = [(float(e["train_seconds"]), float(e["train_loss"])) for e in events]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    finite = [point for point in points if all(map(is_number, point))]
    # A page holds every point of a curve as text, so that curves are thinned out.
    return finite[:: max(1, len(finite) // MOST_POINTS)]


def _has(row: RunRow, *fields: str) -> bool:
    return all(is_number(getattr(row, field)) for field in fields)


def _cut(shown: list[Variant], findings: Findings) -> tuple[list[Variant], str]:
    """Return as many of the best variants as can be read, worst first, and the sentence about those left out."""
    cut = shown[:MOST_ROWS]
    # All others are compared with the reference, so it is always shown.
    if isinstance(findings.reference, Variant) and findings.reference in shown[MOST_ROWS:]:
        cut[-1] = findings.reference
    left_out = f" The best {len(cut)} of {len(shown)}." if len(cut) < len(shown) else ""
    return cut[::-1], left_out


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
