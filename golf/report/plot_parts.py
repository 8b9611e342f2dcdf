"""Shared parts of the plots: colours, figure sizes, axes of variants and legends.

Diamonds are coloured by verdict: blue for the reference, green for better, red for worse, grey for neither. Plots
with a colour for each variant avoid green and red.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from golf.report.findings import Findings, score_title, variant_name
from golf.report.variants import Variant
from golf.report.verdicts import BETTER, WORSE

WIDTH = 4.6  # inches: fonts stay readable when a phone shows the whole width
ROW, MARGINS = 0.28, 1.15  # inches: height of a variant's row; room for the axis below the rows and the legend
CHARACTER, BELOW_AXES = 0.075, 0.85  # inches: length of a letter of an axis label; height of axis and legend
LABEL_WIDTH, LEGEND_WIDTH = 20, 26  # characters a line
GREY, BLUE, GREEN, RED, BLACK = "#8a94a0", "#1f5fa8", "#2f7d4f", "#c2452d", "#333333"
COLOURS = ("#d9822b", "#8e4fa8", "#1495a3", "#7a5c3a", "#d45fa0", "#a39a2c")  # variants beside the reference
SEEDS: Any = {"marker": "o", "linestyle": "", "color": GREY, "markersize": 3.5, "alpha": 0.8}
MEAN: Any = {"marker": "D", "linestyle": "", "markersize": 4.5}
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, so it can be read out, searched and copied
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
}


def new_figure(height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of `height` inches and its axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.25)
    return figure, axes


def figure_height(findings: Findings, rows: Sequence[Variant]) -> float:
    """Return the height in inches at which the names of all rows and the axis label beside them are readable."""
    lines = sum(_wrapped(variant_name(findings, v)).count("\n") + 1 for v in rows)
    longest = max((len(key) for key in findings.study.swept), default=0)
    return max(MARGINS + ROW * max(len(rows), 0.7 * lines, 2), BELOW_AXES + CHARACTER * longest)


def name_rows(axes: Axes, findings: Findings, rows: Sequence[Variant]) -> None:
    """Label the rows with the variants' names and the axis with the swept keys."""
    axes.set_yticks(range(len(rows)), [_wrapped(variant_name(findings, v)) for v in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    keys = " ".join(findings.study.swept)
    a_line = round((figure_height(findings, rows) - BELOW_AXES) / CHARACTER)
    axes.set_ylabel(textwrap.fill(keys, a_line, break_long_words=False))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    plain_numbers(axes.xaxis)


def _wrapped(label: str) -> str:
    """Return the label on at most two lines."""
    if len(label) <= LABEL_WIDTH:
        return label
    # Names tend to differ at their ends, so the middle is cut out.
    if len(label) > 2 * LABEL_WIDTH:
        label = f"{label[: LABEL_WIDTH - 1]}…{label[-LABEL_WIDTH:]}"
    breaks = [i + 1 for i, letter in enumerate(label) if letter in " _/.,=…" and 0 <= len(label) - i - 1 <= LABEL_WIDTH]
    middle = min((i for i in breaks if i <= LABEL_WIDTH), key=lambda i: abs(2 * i - len(label)), default=LABEL_WIDTH)
    return f"{label[:middle].strip()}\n{label[middle:].strip()}"


def plain_numbers(axis: Any) -> None:
    """Show 1.2234 on the axis, not 3.4e-3 with an offset of 1.22 above it."""
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def ticks_apart(positions: Sequence[float], is_log: bool) -> list[float]:
    """Return the swept values whose labels have room beside each other."""
    on_axis = [math.log(p) for p in positions] if is_log else list(positions)
    # Labels closer than a seventh of the axis would run into each other.
    room = (on_axis[-1] - on_axis[0]) / 7
    kept = [0]
    for index in range(1, len(on_axis)):
        if on_axis[index] - on_axis[kept[-1]] >= room:
            kept.append(index)
    return [positions[index] for index in kept]


def score_label(findings: Findings, separator: str = " ") -> str:
    """Return the axis label of the compared score, such as `post-quant score (bits per byte)`."""
    return f"{score_title(findings).replace('bpb', 'score')}{separator}(bits per byte)"


def verdict_colour(findings: Findings, variant: Variant) -> str:
    """Return the colour of the variant's verdict."""
    if variant is findings.reference:
        return BLUE
    verdict = findings.verdicts.get(variant.id)
    return {BETTER: GREEN, WORSE: RED}.get(verdict.kind if verdict else "", GREY)


def variant_colours(findings: Findings, shown: Sequence[Variant]) -> dict[str, str]:
    """Return a colour by variant id for the reference and the best variants; all others are drawn in grey."""
    others = (v for v in shown if v is not findings.reference)
    colours = {v.id: colour for v, colour in zip(others, COLOURS, strict=False)}
    return {v.id: BLUE for v in shown if v is findings.reference} | colours


def verdict_legend(figure: Figure, findings: Findings, shown: Sequence[Variant], besides: Sequence[Line2D]) -> None:
    """Explain the colours of the verdicts on `shown` below the axes, then the marks in `besides`."""
    words = {BLUE: "reference", GREEN: "better", RED: "worse", GREY: "neither shown" if findings.verdicts else "mean"}
    used = {verdict_colour(findings, v) for v in shown}
    handles = [Line2D([], [], color=colour, label=word, **MEAN) for colour, word in words.items() if colour in used]
    _legend(figure, [*handles, *besides], columns=5)


def variant_legend(
    figure: Figure,
    findings: Findings,
    shown: Sequence[Variant],
    colours: dict[str, str],
    besides: Sequence[Line2D] = (),
) -> None:
    """Name the variants by their colours below the axes, then the marks in `besides`."""
    named = sorted((v for v in shown if v.id in colours), key=lambda v: v is not findings.reference)
    style: Any = {"marker": "o", "linestyle": ""}
    handles = []
    for variant in named:
        suffix = " (reference)" if variant is findings.reference else ""
        label = _short(variant_name(findings, variant), LEGEND_WIDTH - len(suffix)) + suffix
        handles.append(Line2D([], [], color=colours[variant.id], label=label, **style))
    if len(named) < len(shown):
        handles.append(Line2D([], [], color=GREY, label="others", **style))
    _legend(figure, [*handles, *besides], columns=2)


def _legend(figure: Figure, handles: Sequence[Line2D], columns: int) -> None:
    position: Any = {"loc": "outside lower center", "ncols": min(columns, len(handles))}
    figure.legend(handles=handles, columnspacing=1.0, handlelength=1.4, handletextpad=0.4, **position)


def _short(label: str, width: int) -> str:
    """Return the label in at most `width` characters; a longer one loses its middle."""
    # Labels tend to differ at their ends, so more of the end is kept.
    begin = width // 3
    return label if len(label) <= width else f"{label[:begin]}…{label[begin + 1 - width :]}"
