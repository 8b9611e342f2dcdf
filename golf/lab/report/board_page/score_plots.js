"use strict";
// Plots of scores: over the swept setting or any other value, as a grid, differences to the reference, bytes.
// Scores, intervals and verdicts come from Python and are drawn as they are.

const OVER = [["total_bytes", "artifact + code (bytes)"], ["train_seconds", "training seconds"], ["eval_seconds", "seconds of evaluation"], ["steps", "steps"], ["step_ms", "milliseconds a step"]];

/** Draw all plots of scores for the sweep, or the one that all runs have. */
function drawAllScores() {
  const found = shownSweep, rows = runRows().filter(({ run }) => run.state === "ok" && hasValue(run.val_bpb));
  offerValues(found, rows);
  byId("scores-section").hidden = Boolean(choice.page) || !(rows.length || found?.variants.some(v => v.mean !== null));
  if (choice.page) return;
  if (found && !choice.over) drawScores(found); else drawOver(found, rows);
  drawGrid(found);
  drawDifferences(found);
  drawBytes(found);
}

/** Fill the list of values that scores are drawn over. */
function offerValues(found, rows) {
  const keys = settingKeys(rows), first = found ? [["", found.swept.join(" ") || "variant"]] : [];
  const known = [...first, ...keys.map(key => [key, key]), ...OVER.filter(([key]) => rows.some(({ run }) => hasValue(run[key])))];
  byId("over").replaceChildren(...known.map(([key, title]) => new Option(title, key)));
  if (!known.some(([key]) => key === choice.over)) choice.over = known.length ? known[0][0] : "";
  byId("over").value = choice.over;
}

/** Draw the score of each run over a setting or a number, with the mean of each variant. */
function drawOver(found, rows) {
  const title = OVER.find(([key]) => key === choice.over)?.[1] || choice.over, score = found?.score_field || "val_bpb";
  const at = row => OVER.some(([key]) => key === choice.over) ? row.run[choice.over] : asNumber(row.settings[choice.over]);
  const points = rows.map(row => ({ x: at(row), y: row.run[score], variant: row.run.variant, id: row.id })).filter(p => hasValue(p.x) && hasValue(p.y));
  const numeric = points.every(p => typeof p.x === "number"), numbers = points.map(p => p.x), variants = new Map();
  for (const p of points) variants.has(p.variant) ? variants.get(p.variant).push(p) : variants.set(p.variant, [p]);
  const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
  const colour = variant => styleOf(variant).color;
  const means = [...variants].map(([variant, own]) => ({ variant, x: numeric ? mean(own.map(p => p.x)) : own[0].x, y: mean(own.map(p => p.y)), id: `mean of ${counted(own.length, "run")}` }));
  const trace = (name, shown, marker) => ({ name, type: "scatter", mode: "markers", x: shown.map(p => numeric ? p.x : plotText(p.x)), y: shown.map(p => p.y), text: shown.map(p => plotText(p.id)), hoverinfo: "x+y+text", marker: { color: shown.map(p => colour(p.variant)), ...marker } });
  const traces = points.length ? [trace("run", points, { size: 6, opacity: .6 }), trace("mean of a variant", means, { size: 11, symbol: "circle-open", line: { width: 2 } }), ...fieldLines(found, numeric ? [Math.min(...numbers), Math.max(...numbers)] : [plotText(points[0].x), plotText(points[points.length - 1].x)], false)] : [];
  draw("scores", traces, {
    revision: choice.sweep + choice.over, x: { title: { text: plotText(title) }, ...(numeric ? { ...logTicks(numbers), exponentformat: "SI" } : { type: "category", categoryorder: "category ascending" }) },
    y: { title: { text: `${plotText(found?.score || "final bpb")} (bits per byte)` } },
  }, `${found?.score || "Final bpb"} against ${title}, ${counted(points.length, "run")} of ${counted(variants.size, "variant")}. Scores on different texts do not compare.`);
}

/** Return the ticks of a logarithmic axis for numbers that span a factor of four or more. */
function logTicks(numbers) {
  const distinct = new Set(numbers).size;
  if (distinct < 3 || Math.min(...numbers) <= 0 || Math.max(...numbers) / Math.min(...numbers) < 4) return {};
  if (distinct > 12) return { type: "log" };
  const labelled = spreadOut(numbers, 12);
  return { type: "log", tickvals: labelled, ticktext: labelled.map(n => String(Number(n.toPrecision(4)))) };
}

/** Return the lines of the public records next to the best variant here, across `ends` of the other axis. */
function fieldLines(found, ends, isUpright) {
  const best = found?.variants.find(v => v.mean !== null), records = found?.field?.records || [];
  if (!best || !records.length) return [];
  const ahead = records.filter(record => record.bpb < best.mean).length;
  const near = [records[ahead - 1], records[ahead]].filter(Boolean);
  return near.map((record, i) => {
    const at = [record.bpb, record.bpb];
    return {
      name: plotText(`public: ${record.name} ${record.bpb.toFixed(4)}`), type: "scatter", mode: "lines", x: isUpright ? at : ends, y: isUpright ? ends : at,
      line: { color: colourVariable("--faint"), width: 1.2, dash: i ? "dot" : "dashdot" }, hoverinfo: "name",
    };
  });
}

/** Draw the best mean in each cell of two swept settings; where more were swept, the page offers which two. */
function drawGrid(found) {
  const keys = (found?.swept || []).filter(key => found.variants.every(v => key in v.values) && new Set(found.variants.map(v => v.values[key])).size > 1);
  const rowKey = keys.find(key => key === choice.gridRows) ?? keys[0], others = keys.filter(key => key !== rowKey);
  const columnKey = others.find(key => key === choice.gridColumns) ?? others[0];
  for (const [id, chosen] of [["grid-rows", rowKey], ["grid-columns", columnKey]]) {
    byId(id).closest("label").hidden = keys.length < 3;
    byId(id).replaceChildren(...keys.map(key => new Option(key, key)));
    byId(id).value = chosen;
  }
  const scored = (found?.variants || []).filter(v => v.mean !== null);
  if (keys.length < 2 || scored.length < 2) { draw("grid", [], {}, ""); return; }
  const values = key => [...new Set(found.variants.map(v => v.values[key]))].sort((a, b) => compared(asNumber(a), asNumber(b)));
  const [rows, columns] = [values(rowKey), values(columnKey)];
  const cells = rows.map(r => columns.map(c => scored.find(v => v.values[rowKey] === r && v.values[columnKey] === c)));
  const each = value => cells.map(line => line.map(v => v ? value(v) : null)), means = scored.map(v => v.mean);
  const limit = Math.min(...means) + 1e-9 + Math.max(0, median(means) - Math.min(...means)) * 2;
  draw("grid", [{
    name: "", type: "heatmap", x: columns.map(plotText), y: rows.map(plotText), z: each(v => v.mean), text: each(v => v.mean.toFixed(4)), texttemplate: "%{text}", showlegend: false,
    customdata: each(v => plotText(`${v.name}: ${v.kind}`)), hovertemplate: "%{customdata}<br>%{z:.4f}<extra></extra>", xgap: 2, ygap: 2, zmin: Math.min(...means), zmax: limit,
    colorscale: [[0, "#0b4f8a"], [.5, "#7fb0d8"], [1, "#e6eef5"]], colorbar: { thickness: 12, outlinewidth: 0 },
  }], {
    revision: found.title + rowKey + columnKey, names: rows.length, x: { type: "category", title: { text: plotText(columnKey) } }, y: { type: "category", title: { text: plotText(rowKey) } },
  }, `${found.score} by ${rowKey} and ${columnKey}; dark is better.${keys.length > 2 ? " Each cell shows the best variant that has these two values." : ""}`);
}

function median(values) {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

function drawDifferences(found) {
  const scored = found?.variants || [], names = axisNames(scored), compared = scored.filter(v => v.difference !== null);
  const differences = compared.map(v => {
    const { color } = styleOf(v.id);
    return {
      name: plotText(v.kind), type: "scatter", mode: "markers", showlegend: false, y: [names.get(v.id)], x: [v.difference],
      marker: { color, symbol: SHAPES[v.kind] || OTHER_SHAPE, size: 10 },
      error_x: bars([v.difference], [v.difference_interval || [v.difference, v.difference]], color), hoverinfo: "x+y+name",
    };
  });
  const shown = [...new Set(compared.map(v => v.kind))];
  const zero = { type: "line", x0: 0, x1: 0, yref: "paper", y0: 0, y1: 1, line: { color: colourVariable("--faint"), width: 1 } };
  draw("differences", compared.length ? [...differences, ...shapeLegend(shown)] : [], {
    revision: found?.title, names: compared.length, shapes: [zero], x: { title: { text: `${innerWidth < NARROW ? "Δ" : "difference in"} bits per byte; left is better` } },
    y: { type: "category", autorange: "reversed" },
  }, `Difference to ${found?.reference}, ${aboutIntervals(found)} A bar of no length: no test was possible.`);
}

/** Say what the intervals of differences hold for: all looks of a sweep in rounds, or one look at one variant. */
function aboutIntervals(found) {
  const percent = `${Math.round(100 * (found?.confidence || 0))}% intervals`;
  return found?.looks ? `repeated ${percent}: each holds at all ${counted(found.looks, "look")} so far and those to come.` : `${percent}, each for one look at its own variant.`;
}

function drawScores(found) {
  const numeric = found.variants.some(v => v.number !== null), names = axisNames(found.variants), name = v => names.get(v.id);
  const scored = found.variants.filter(v => v.mean !== null), kinds = [...new Set(scored.map(v => v.kind))], swept = found.swept.join(" ") || "variant";
  const title = { title: { text: `${plotText(found.score)} (bits per byte)` } }, place = v => numeric ? v.number : name(v);
  const seeds = scored.flatMap(v => v.seeds.map(seed => [place(v), seed.score, `seed ${seed.seed}`]));
  const across = points => numeric ? { x: points.map(p => p[0]), y: points.map(p => p[1]) } : { y: points.map(p => p[0]), x: points.map(p => p[1]) };
  const colours = scored.flatMap(v => v.seeds.map(() => styleOf(v.id).color));
  const traces = [{
    name: "seed", type: "scatter", mode: "markers", showlegend: false, marker: { color: colours, size: 5, opacity: .6 },
    ...across(seeds), text: seeds.map(p => p[2]), hoverinfo: "x+y+text",
  }];
  for (const v of scored) {
    const { color } = styleOf(v.id);
    traces.push({
      name: plotText(v.kind), type: "scatter", mode: "markers", showlegend: false,
      marker: { color, symbol: SHAPES[v.kind] || OTHER_SHAPE, size: 11 }, ...across([[place(v), v.mean]]),
      [numeric ? "error_y" : "error_x"]: bars([v.mean], [v.interval], color), hoverinfo: "x+y+name",
    });
  }
  const seedMark = { name: "seed", type: "scatter", mode: "markers", x: [null], y: [null], marker: { color: colourVariable("--faint"), size: 5 }, hoverinfo: "skip" };
  const numbers = scored.map(v => v.number);
  traces.push(...shapeLegend(kinds), seedMark);
  if (scored.length) traces.push(...fieldLines(found, numeric ? [Math.min(...numbers), Math.max(...numbers)] : [name(scored[0]), name(scored[scored.length - 1])], !numeric));
  const ticks = numeric ? logTicks(numbers) : {}, label = { title: { text: plotText(shortened(swept, 60)) } };
  draw("scores", scored.length ? traces : [], {
    revision: found.title, names: numeric ? 0 : scored.length, x: numeric ? { ...label, ...ticks } : title,
    y: numeric ? title : { type: "category", autorange: "reversed", ...label },
  }, `${found.score} against ${swept}, one mark a variant with the ${Math.round(100 * found.confidence)}% interval of its mean, for one look.`);
}

/** Return those of the numbers that are far enough apart on a logarithmic axis, at most so many. */
function spreadOut(numbers, most) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const least = (sorted[sorted.length - 1] / sorted[0]) ** (1 / most);
  const kept = [];
  for (const number of sorted) if (!kept.length || number >= kept[kept.length - 1] * least) kept.push(number);
  return kept;
}

function drawBytes(found) {
  const scored = (found?.variants || []).filter(v => v.mean !== null), names = axisNames(scored);
  const traces = scored.map(v => ({
    name: names.get(v.id), type: "scatter", mode: "markers", x: v.seeds.map(s => s.bytes), y: v.seeds.map(s => s.score),
    marker: { color: styleOf(v.id).color, symbol: styleOf(v.id).marker, size: 8 },
    text: v.seeds.map(s => `seed ${s.seed}`), hoverinfo: "x+y+name+text",
  })).filter(trace => trace.x.some(x => x !== null)).slice(0, 28);
  const heights = traces.flatMap(trace => trace.y);
  const caps = (found?.cap_bytes || []).map(cap => ({
    name: "cap", type: "scatter", mode: "lines", x: [cap, cap], y: [Math.min(...heights), Math.max(...heights)],
    line: { color: colourVariable("--ink"), dash: "dash", width: 1 }, hoverinfo: "x+name",
  }));
  draw("bytes", traces.length ? [...traces, ...caps] : [], {
    revision: found?.title, x: { title: { text: "artifact + code (bytes)" }, exponentformat: "SI" },
    y: { title: { text: `${plotText(found?.score)} (bits per byte)` } },
  }, `${found?.score} against bytes, one mark a run.${caps.length ? " Dashed: the cap." : ""}`);
}

function bars(middles, intervals, color) {
  return {
    type: "data", symmetric: false, color, thickness: 1.5, width: 4,
    array: middles.map((m, i) => intervals[i] ? intervals[i][1] - m : 0),
    arrayminus: middles.map((m, i) => intervals[i] ? m - intervals[i][0] : 0),
  };
}
