"""Plots of findings as SVG text: score over what was swept, differences, bytes, curves. Only this brings matplotlib."""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, ScalarFormatter

from golf.errors import GolfError
from golf.report.findings import Findings, reference_name, score_title, variant_name
from golf.report.rows import RunRow, is_number
from golf.report.statistics import known_sigma, one_sample
from golf.report.variants import SCORES, Variant
from golf.report.verdicts import BETTER, WORSE

WIDTH, ROW, MARGINS = 4.6, 0.28, 0.9  # inches; fonts stay readable when a phone shows the whole width
MOST_ROWS, MOST_COLOURS, MOST_CURVES, MOST_POINTS = 30, 7, 40, 200
LABEL_WIDTH, LEGEND_WIDTH = 20, 26  # characters a line
CHARACTER, BELOW_AXES = 0.075, 0.6  # inches: of an axis label; what the other axis takes
DOTS_PER_INCH = 160
GREY, BLUE, GREEN, RED = "#8a94a0", "#1f5fa8", "#2f7d4f", "#c2452d"
COLOURS = (BLUE, "#d9822b", GREEN, "#8e4fa8", RED, "#1495a3", "#7a5c3a")
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it can be read out, searched and copied
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
}


def figures(findings: Findings) -> list[tuple[str, str]]:
    """(caption, SVG) of every plot that these findings have something for."""
    with matplotlib.rc_context(STYLE):
        return [(caption, _svg(figure, name)) for name, caption, figure in _drawn(findings)]


def pictures(findings: Findings) -> list[tuple[str, str, bytes]]:
    """(name, caption, PNG) of the same plots, for places that show no SVG."""
    found = []
    with matplotlib.rc_context(STYLE):
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
    shown = [v for v in findings.variants if v.scores(findings.score)]
    if not shown:
        return None
    spread = "bars: " + _interval_words(findings)
    numbers = _swept_numbers(findings, shown)
    if numbers:
        figure, axes = _figure(3.3)
        _score_over_value(axes, findings, shown, numbers)
        key = findings.study.swept[0]
        return f"{_capital(score_title(findings))} against {key}. Dots: seeds; {spread}.", figure
    cut, left_out = _cut(shown, findings)
    figure, axes = _figure(_height(findings, cut))
    for y, variant in enumerate(cut):
        values = variant.scores(findings.score)
        axes.plot(values, [y] * len(values), "o", color=GREY, markersize=3.5, alpha=0.8)
        low, high = _mean_interval(findings, variant)
        mean = _mean(findings, variant)
        axes.plot([low, high], [y, y], color=_colour(findings, variant), linewidth=1.6)
        axes.plot([mean], [y], "D", color=_colour(findings, variant), markersize=4.5)
    _name_rows(axes, findings, cut)
    axes.set_xlabel(f"{score_title(findings)} (bits per byte)")
    caption = f"{_capital(score_title(findings))} of the variants. Dots: seeds; {spread}.{left_out}"
    return caption, figure


def _score_over_value(axes: Axes, findings: Findings, shown: Sequence[Variant], numbers: dict[str, float]) -> None:
    for variant in shown:
        x, colour = numbers[variant.id], _colour(findings, variant)
        values = variant.scores(findings.score)
        axes.plot([x] * len(values), values, "o", color=GREY, markersize=3.5, alpha=0.8)
        axes.plot([x, x], _mean_interval(findings, variant), color=colour, linewidth=1.6)
        axes.plot([x], [_mean(findings, variant)], "D", color=colour, markersize=4.5)
    ordered = sorted(shown, key=lambda v: numbers[v.id])
    axes.plot(
        [numbers[v.id] for v in ordered], [_mean(findings, v) for v in ordered], color=GREY, linewidth=0.8, zorder=0
    )
    positions = sorted(set(numbers.values()))
    if positions[0] > 0 and positions[-1] / positions[0] >= 4:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    axes.set_xticks(_apart(positions, axes.get_xscale() == "log"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(findings.study.swept[0])
    axes.set_ylabel(f"{score_title(findings)}\n(bits per byte)")
    _plain_numbers(axes.yaxis)


def _differences(findings: Findings) -> tuple[str, Figure] | None:
    """A forest plot: the difference to the reference with its interval, one row a variant."""
    shown = [v for v in findings.variants if (w := findings.verdicts.get(v.id)) and w.difference_bpb is not None]
    if not shown:
        return None
    cut, left_out = _cut(shown, findings)
    figure, axes = _figure(_height(findings, cut))
    axes.axvline(0.0, color="#333333", linewidth=0.8)
    for y, variant in enumerate(cut):
        verdict, colour = findings.verdicts[variant.id], _colour(findings, variant)
        if verdict.comparison:
            axes.plot(verdict.comparison.interval(findings.rules.confidence), [y, y], color=colour, linewidth=1.6)
        marker = "D" if verdict.comparison else "o"
        face = colour if verdict.comparison else "white"
        axes.plot([verdict.difference_bpb or 0.0], [y], marker, color=colour, markerfacecolor=face, markersize=4.5)
    _name_rows(axes, findings, cut)
    axes.set_xlabel("difference in bits per byte; left is better")
    caption = (
        f"Difference to {reference_name(findings)}, {findings.rules.confidence:.0%} intervals. Green: better, "
        f"red: worse, grey: neither shown; open: no test possible.{left_out}"
    )
    return caption, figure


def _bytes(findings: Findings) -> tuple[str, Figure] | None:
    field = SCORES[findings.score]
    shown = [v for v in findings.variants if any(_has(r, field, "total_bytes") for r in v.rows)]
    if not shown:
        return None
    figure, axes = _figure(3.6)
    colours = _variant_colours(findings, shown)
    for variant in reversed(shown):
        points = [(r.total_bytes or 0, getattr(r, field)) for r in variant.rows if _has(r, field, "total_bytes")]
        x, y = [point[0] / 1e6 for point in points], [point[1] for point in points]
        axes.plot(x, y, "o", color=colours.get(variant.id, GREY), markersize=4.5, alpha=0.85)
    caps = sorted({row.cap_bytes for v in shown for row in v.rows if row.cap_bytes})
    for cap in caps:
        axes.axvline(cap / 1e6, color=RED, linestyle="--", linewidth=1.0)
    axes.set_xlabel("artifact + code (MB of 1,000,000 bytes)")
    axes.set_ylabel(f"{score_title(findings)}\n(bits per byte)")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    _plain_numbers(axes.xaxis)
    _plain_numbers(axes.yaxis)
    _legend(figure, findings, shown, colours)
    limit = f" Dashed: the cap of {', '.join(f'{cap:,}' for cap in caps)} bytes." if caps else ""
    return f"Bytes against {score_title(findings)}, one dot a run.{limit}", figure


def _curves(findings: Findings) -> tuple[str, Figure] | None:
    colours = _variant_colours(findings, findings.variants)
    wanted = [v for v in findings.variants if v.id in colours]
    drawn = [(v, curve) for v in wanted for row in v.rows if len(curve := _curve(row)) > 1][:MOST_CURVES]
    if not drawn:
        return None
    figure, axes = _figure(3.6)
    for variant, curve in reversed(drawn):
        x, y = [point[0] for point in curve], [point[1] for point in curve]
        axes.plot(x, y, color=colours[variant.id], linewidth=1.0, alpha=0.85)
    losses = sorted(loss for _, curve in drawn for _, loss in curve[len(curve) // 10 :])
    room = 0.05 * (losses[-1] - losses[0]) or 0.1
    axes.set_ylim(losses[0] - room, losses[-1] + room)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("training loss (nats per token)")
    _plain_numbers(axes.yaxis)
    _legend(figure, findings, [v for v in wanted if any(v is other for other, _ in drawn)], colours)
    hidden = len(findings.variants) - len(wanted)
    rest = f" The best {len(wanted)} variants; {hidden} more are in the table." if hidden else ""
    return f"Training loss over the clock, one line a run.{rest}", figure


def _curve(row: RunRow) -> list[tuple[float, float]]:
    """(seconds, training loss) of a run of our own, thinned."""
    try:
        lines = (row.path / "metrics.jsonl").read_text().splitlines() if row.path else []
        events = [json.loads(line) for line in lines if line.startswith('{"event": "train"')]
        points = [(float(e["train_seconds"]), float(e["train_loss"])) for e in events]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    finite = [point for point in points if all(map(is_number, point))]
    return finite[:: max(1, len(finite) // MOST_POINTS)]


def _has(row: RunRow, *fields: str) -> bool:
    return all(is_number(getattr(row, field)) for field in fields)


def _mean(findings: Findings, variant: Variant) -> float:
    mean = variant.mean(findings.score)
    assert mean is not None, "only variants with scores are drawn"
    return mean


def _mean_interval(findings: Findings, variant: Variant) -> tuple[float, float]:
    """Of the mean; the mean itself where nothing is known about the noise."""
    scores = variant.scores(findings.score)
    try:
        if findings.sigma is not None and len(scores) < 2:
            found = known_sigma(scores, 0.0, findings.sigma)
        else:
            found = one_sample(scores, 0.0)
    except GolfError:
        return scores[0], scores[0]
    return found.interval(findings.rules.confidence)


def _interval_words(findings: Findings) -> str:
    return f"{findings.rules.confidence:.0%} interval of the mean"


def _swept_numbers(findings: Findings, shown: Iterable[Variant]) -> dict[str, float]:
    """Variant id → value, if one key was swept over three or more numbers."""
    swept = findings.study.swept
    try:
        numbers = {v.id: float(v.values[swept[0]]) for v in shown} if len(swept) == 1 else {}
    except (KeyError, ValueError):
        return {}
    return numbers if len(set(numbers.values())) > 2 else {}


def _apart(positions: Sequence[float], is_log: bool) -> list[float]:
    """Those of the swept values whose labels have room beside each other."""
    places = [math.log(p) for p in positions] if is_log else list(positions)
    room = (places[-1] - places[0]) / 7
    kept = [0]
    for index in range(1, len(places)):
        if places[index] - places[kept[-1]] >= room:
            kept.append(index)
    return [positions[index] for index in kept]


def _cut(shown: list[Variant], findings: Findings) -> tuple[list[Variant], str]:
    """The best ones, the worst at the bottom, as many as can be read; and the words for what is left out."""
    cut = shown[:MOST_ROWS]
    if isinstance(findings.reference, Variant) and findings.reference in shown[MOST_ROWS:]:
        cut[-1] = findings.reference
    left_out = f" The best {len(cut)} of {len(shown)}." if len(cut) < len(shown) else ""
    return cut[::-1], left_out


def _colour(findings: Findings, variant: Variant) -> str:
    if variant is findings.reference:
        return BLUE
    verdict = findings.verdicts.get(variant.id)
    return {BETTER: GREEN, WORSE: RED}.get(verdict.kind if verdict else "", GREY)


def _variant_colours(findings: Findings, shown: Sequence[Variant]) -> dict[str, str]:
    """A colour each for the reference and the best; the others stay grey."""
    first = [v for v in shown if v is findings.reference]
    chosen = [*first, *(v for v in shown if v is not findings.reference)][:MOST_COLOURS]
    return {v.id: colour for v, colour in zip(chosen, COLOURS, strict=False)}


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.25)
    return figure, axes


def _height(findings: Findings, rows: Sequence[Variant]) -> float:
    lines = sum(_wrapped(variant_name(findings, v)).count("\n") + 1 for v in rows)
    longest = max((len(key) for key in findings.study.swept), default=0)
    return max(MARGINS + ROW * max(len(rows), 0.7 * lines, 2), BELOW_AXES + CHARACTER * longest)


def _name_rows(axes: Axes, findings: Findings, rows: Sequence[Variant]) -> None:
    axes.set_yticks(range(len(rows)), [_wrapped(variant_name(findings, v)) for v in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    keys = " ".join(findings.study.swept)
    a_line = round((_height(findings, rows) - BELOW_AXES) / CHARACTER)
    axes.set_ylabel(textwrap.fill(keys, a_line, break_long_words=False))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    _plain_numbers(axes.xaxis)


def _wrapped(label: str) -> str:
    """On at most two lines; what is still too long loses its middle, because names tend to differ at their ends."""
    if len(label) <= LABEL_WIDTH:
        return label
    if len(label) > 2 * LABEL_WIDTH:
        label = f"{label[: LABEL_WIDTH - 1]}…{label[-LABEL_WIDTH:]}"
    breaks = [i + 1 for i, letter in enumerate(label) if letter in " _/.,=…" and 0 <= len(label) - i - 1 <= LABEL_WIDTH]
    middle = min((i for i in breaks if i <= LABEL_WIDTH), key=lambda i: abs(2 * i - len(label)), default=LABEL_WIDTH)
    return f"{label[:middle].strip()}\n{label[middle:].strip()}"


def _plain_numbers(axis: Any) -> None:
    """No offset above the axis: 1.2234, not 3.4e-3 + 1.22."""
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def _legend(figure: Figure, findings: Findings, shown: Sequence[Variant], colours: dict[str, str]) -> None:
    named = [v for v in shown if v.id in colours]
    style: Any = {"marker": "o", "linestyle": ""}
    handles = [Line2D([], [], color=colours[v.id], label=_short(variant_name(findings, v)), **style) for v in named]
    if len(named) < len(shown):
        handles.append(Line2D([], [], color=GREY, label="others", **style))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, columnspacing=1.0, handletextpad=0.2)


def _short(label: str) -> str:
    return label if len(label) <= LEGEND_WIDTH else f"{label[:9]}…{label[10 - LEGEND_WIDTH :]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _svg(figure: Figure, salt: str) -> str:
    """The figure as an element to put into a page: no prologue, no metadata, ids of its own."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
