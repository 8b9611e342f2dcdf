"""A self-contained HTML page of findings: table, remarks and plots. It fetches nothing and runs no script."""

from __future__ import annotations

from html import escape
from string import Template

from golf.report.findings import Findings
from golf.report.plots import figures
from golf.report.results import results_table
from golf.report.table import Column, Table
from golf.report.verdicts import BETTER, WORSE

LONG = 24  # characters; longer cells may wrap
# `string.Template` and not `str.format`, because CSS is full of braces.
PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { margin: 0 auto; max-width: 1360px; padding: 1rem; font: 15px/1.45 system-ui, sans-serif; color: #1d232a; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
code { font-size: .85rem; overflow-wrap: anywhere; color: #4a5560; }
ul { padding-left: 1.1rem; margin: .8rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; border: 1px solid #d8dee4; border-radius: 6px; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .36rem .45rem; border-bottom: 1px solid #e6eaee; text-align: right; vertical-align: top; }
th { background: #f4f6f8; font-weight: 600; vertical-align: bottom; }
td { white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th.text, td.text { text-align: left; }
td.long { white-space: normal; min-width: 15rem; max-width: 24rem; overflow-wrap: anywhere; }
th:first-child, td:first-child { position: sticky; left: 0; max-width: 9rem; overflow-wrap: break-word; }
td.long:first-child { min-width: 7rem; }
td:first-child { background: #fff; }
td.better { color: #23653f; font-weight: 600; }
td.worse { color: #a93620; font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 1.2rem; }
figure { margin: 0; min-width: 0; }
figure svg { width: 100%; height: auto; max-width: 590px; display: block; }
figcaption { font-size: .85rem; color: #4a5560; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>$title</h1>
$command
<div class="scroll">
$table
</div>
<ul>
$notes
</ul>
<div class="plots">
$plots
</div>
</body>
</html>
""")


def page(findings: Findings) -> str:
    """Return the HTML text of the whole page."""
    table = results_table(findings)
    command = findings.study.command
    return PAGE.substitute(
        title=escape(table.title),
        command=f"<code>{escape(command)}</code>" if command else "",
        table=_table(table),
        notes="\n".join(f"<li>{escape(note)}</li>" for note in table.notes),
        plots="\n".join(_figure(caption, svg) for caption, svg in figures(findings)),
    )


def _table(table: Table) -> str:
    columns = table.filled
    head = "".join(f"<th{_class(c)}>{escape(c.title)}</th>" for c in columns)
    lines = [f"<tr>{''.join(_cell(c, c.cell(row)) for c in columns)}</tr>" for row in table.rows]
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{chr(10).join(lines)}\n</tbody>\n</table>"


def _cell(column: Column, text: str) -> str:
    kind = text.partition(":")[0]
    extra = "long" if len(text) > LONG else ""
    if column.key == "verdict" and kind in (BETTER, WORSE):
        extra = kind
    return f"<td{_class(column, extra)}>{escape(text)}</td>"


def _class(column: Column, extra: str = "") -> str:
    names = " ".join(filter(None, ("text" if column.is_text else "", extra)))
    return f' class="{names}"' if names else ""


def _figure(caption: str, svg: str) -> str:
    # Screen readers read the caption instead of every tick label.
    labelled = svg.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return f"<figure>\n{labelled}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
