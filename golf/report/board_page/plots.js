"use strict";
// Pictures of the board, drawn by plotly. Scores, intervals and verdicts come from Python and are drawn as they are.

// Colours of Okabe and Ito without the two that vanish on white paper; the dashes tell the rest apart.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a7f3a", "#7f8790"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
// A variant has one colour in every plot, so that the verdict is told by the shape.
const SHAPES = { "reference": "diamond", "better": "triangle-down", "worse": "triangle-up" };
const OTHER_SHAPE = "circle";
const MARKERS = ["circle", "square", "cross", "x", "pentagon", "star", "hexagram", "hourglass"];
const places = new Map();  // variant id → its place in the order of colours
let styledSweep = "";
const AXIS_TITLES = {
  step: "step", tokens: "tokens", bytes: "bytes of text", train_seconds: "training seconds",
  train_loss: "training loss (nats per token)", val_loss: "validation loss (nats per token)",
  val_bpb: "validation score (bits per byte)", lr_multiplier: "learning-rate multiplier",
  tokens_per_second: "tokens per second",
};
const FIELDS = {
  train: ["step", "tokens", "train_seconds", "train_loss", "lr_multiplier", "tokens_per_second"],
  validation: ["step", "tokens", "train_seconds", "val_loss", "val_bpb"],
};

/** Give the variants of a sweep their colours in this order. None changes while more variants arrive. */
function takeStyles(sweep, variants) {
  if (sweep !== styledSweep) places.clear();
  styledSweep = sweep;
  variants.forEach(styleOf);
}

/** Return the variant's colour; where more variants than colours are shown, dash and marker tell them apart. */
function styleOf(variant) {
  if (!places.has(variant)) places.set(variant, places.size);
  const place = places.get(variant), round = Math.floor(place / COLOURS.length);
  return { color: COLOURS[place % COLOURS.length], isFilled: round === 0, dash: DASHES[round % DASHES.length], marker: MARKERS[round % MARKERS.length] };
}

/** Return traces that draw nothing and explain the shapes of the given verdicts in the legend. */
function shapeLegend(kinds) {
  const marker = kind => ({ color: colourVariable("--faint"), symbol: SHAPES[kind] || OTHER_SHAPE, size: 9 });
  return kinds.map(kind => ({ name: plotText(kind), type: "scatter", mode: "markers", x: [null], y: [null], marker: marker(kind), hoverinfo: "skip" }));
}

/** Return text that plotly shows as it is: it would read tags and entities in names. */
function plotText(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function shortened(text, most) {
  // Names tend to differ at their ends, so the middle is cut out.
  const half = Math.floor((most - 1) / 2);
  return text.length > most ? `${text.slice(0, half)}…${text.slice(-half)}` : text;
}

/** Return names of variants that leave room for a plot, by id. One name for two would draw them in one place. */
function axisNames(variants) {
  const most = innerWidth < NARROW ? 22 : 30;
  const short = variants.map(v => shortened(v.name, most));
  const shown = new Set(short).size === short.length ? short : variants.map(v => v.name);
  return new Map(variants.map((v, i) => [v.id, plotText(shown[i])]));
}

function colourVariable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// ---- what is not in view waits: a page of a thousand runs is there before its plots are

const NARROW = 600;  // pixels of a window below which names and titles are shorter
const NEAR = 300;  // pixels outside the window that count as in view
const waiting = new Map();  // element → what to do once it comes into view
let isOnPaper = false;  // paper has no window, and everything is in view
const watcher = new IntersectionObserver(entries => entries.filter(e => e.isIntersecting).forEach(e => arrive(e.target)), { rootMargin: `${NEAR}px` });

function isNear(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return isOnPaper || (bottom > -NEAR && top < innerHeight + NEAR);
}

/** Do it now if the element is in view, else once it is. What waited for the element before is forgotten. */
function whenNear(element, action) {
  waiting.set(element, action);
  watcher.observe(element);
  if (isNear(element)) arrive(element);
}

function arrive(element) {
  const action = waiting.get(element);
  waiting.delete(element);
  watcher.unobserve(element);
  if (action) action();
}

let plotly = null;  // promise of the library, which takes longer to start than the rest of the page

/** Call `action` once plotly is there: at once if it is, which printing needs. */
function withPlotly(action) {
  if (window.Plotly) return action();
  plotly ||= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => { plotly = null; reject(new Error("plotly.min.js did not load")); });
    script.src = "plotly.min.js";
    document.head.append(script);
  });
  plotly.then(action, error => { byId("status").textContent = `Not up to date: ${error.message}.`; });
}

function draw(id, traces, axes, caption) {
  const place = document.getElementById(id);
  const figure = place.closest("figure");
  figure.hidden = traces.length === 0;
  if (figure.hidden) return;
  place.setAttribute("aria-label", caption);
  figure.querySelector("figcaption").textContent = caption;
  const grid = { gridcolor: colourVariable("--line"), zerolinecolor: colourVariable("--line"), automargin: true };
  const rows = legendRows(traces, place.clientWidth);
  // Each name of a category needs a line.
  const lines = Math.min(900, 90 + 17 * (axes.names || 0));
  figure.classList.toggle("tall", lines > 400);
  place.style.height = `${Math.max(id === "curves" ? 380 : 290, lines) + 20 * rows}px`;
  const titled = axis => axis.title ? { ...axis, title: { standoff: 8, ...axis.title } } : axis;
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: true, uirevision: id + axes.revision,
    font: { color: colourVariable("--ink"), size: 12 }, margin: { l: 56, r: 14, t: 28, b: 56 + 20 * rows },
    hovermode: "closest", hoverlabel: { namelength: -1 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: colourVariable("--faint"), activecolor: colourVariable("--ink") },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
    shapes: axes.shapes || [], xaxis: { ...grid, exponentformat: "power", ...titled(axes.x) }, yaxis: { ...grid, ...titled(axes.y) },
  };
  whenNear(place, () => withPlotly(() => paint(id, place, traces, layout)));
}

const painting = new Map();  // plot → promise of its end

function paint(id, place, traces, layout) {
  // Plots follow the size of a window and not that of a sheet.
  if (isOnPaper) layout.width = place.clientWidth;
  const svg = { name: "Save as SVG", icon: Plotly.Icons.camera, click: g => Plotly.downloadImage(g, { format: "svg", filename: id }) };
  const react = () => Plotly.react(place, traces, layout, {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", modeBarButtonsToAdd: [svg], toImageButtonOptions: { filename: id, scale: 2 },
    modeBarButtonsToRemove: ["select2d", "lasso2d"],
  });
  // Two drawings of one plot at once would each move the other's margins, for ever.
  const done = painting.has(place) ? painting.get(place).then(react) : react();
  painting.set(place, done);
  done.finally(() => { if (painting.get(place) === done) painting.delete(place); });
}

/** Return the rows of a legend below the axes; plotly gives each entry the width of the longest one. */
function legendRows(traces, width) {
  const names = traces.filter(trace => trace.showlegend !== false).map(trace => trace.name.length);
  const inARow = Math.max(1, Math.floor((width - 80) / (7 * Math.max(...names) + 50)));
  return Math.ceil(names.length / inARow);
}

/** Draw score against the swept setting, the differences to the reference, and score against bytes. */
function drawSweep(found) {
  const kinds = [...new Set(found.variants.map(v => v.kind))];
  const percent = `${Math.round(100 * found.confidence)}%`;
  const numeric = found.variants.some(v => v.number !== null);
  const names = axisNames(found.variants);
  const name = v => names.get(v.id);
  const scored = found.variants.filter(v => v.mean !== null);
  drawScores(found, scored, kinds, numeric, name, percent);
  const compared = found.variants.filter(v => v.difference !== null);
  const differences = compared.map(v => {
    const { color } = styleOf(v.id);
    return {
      name: plotText(v.kind), type: "scatter", mode: "markers", showlegend: false, y: [name(v)], x: [v.difference],
      marker: { color, symbol: SHAPES[v.kind] || OTHER_SHAPE, size: 10 },
      error_x: bars([v.difference], [v.difference_interval || [v.difference, v.difference]], color), hoverinfo: "x+y+name",
    };
  });
  const shown = kinds.filter(kind => compared.some(v => v.kind === kind));
  const zero = { type: "line", x0: 0, x1: 0, yref: "paper", y0: 0, y1: 1, line: { color: colourVariable("--faint"), width: 1 } };
  draw("differences", compared.length ? [...differences, ...shapeLegend(shown)] : [], {
    revision: found.title, names: compared.length, shapes: [zero], x: { title: { text: `${innerWidth < NARROW ? "Δ" : "difference in"} bits per byte; left is better` } },
    y: { type: "category", autorange: "reversed" },
  }, `Difference to ${found.reference}, ${percent} intervals. A bar of no length: no test was possible.`);
  drawBytes(found, scored, name);
}

function drawScores(found, scored, kinds, numeric, name, percent) {
  const title = { title: { text: `${plotText(found.score)} (bits per byte)` } };
  const swept = { title: { text: plotText(found.swept) } };
  const seeds = scored.flatMap(v => v.seeds.map(seed => [numeric ? v.number : name(v), seed.score, `seed ${seed.seed}`]));
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
      marker: { color, symbol: SHAPES[v.kind] || OTHER_SHAPE, size: 11 }, ...across([[numeric ? v.number : name(v), v.mean]]),
      [numeric ? "error_y" : "error_x"]: bars([v.mean], [v.interval], color), hoverinfo: "x+y+name",
    });
  }
  const seedMark = { name: "seed", type: "scatter", mode: "markers", x: [null], y: [null], marker: { color: colourVariable("--faint"), size: 5 }, hoverinfo: "skip" };
  traces.push(...shapeLegend(kinds.filter(kind => scored.some(v => v.kind === kind))), seedMark);
  const numbers = scored.map(v => v.number);
  const wide = numeric && Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) >= 4;
  const labelled = wide ? spreadOut(numbers, 12) : [];
  const ticks = wide ? { type: "log", tickvals: labelled, ticktext: labelled.map(n => String(Number(n.toPrecision(4)))) } : {};
  draw("scores", scored.length ? traces : [], {
    revision: found.title, names: numeric ? 0 : scored.length, x: numeric ? { ...swept, ...ticks } : title,
    y: numeric ? title : { type: "category", autorange: "reversed", ...swept },
  }, `${found.score} against ${found.swept}, one mark a variant with its ${percent} interval.`);
}

/** Return those of the numbers that are far enough apart on a logarithmic axis, at most so many. */
function spreadOut(numbers, most) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const least = (sorted[sorted.length - 1] / sorted[0]) ** (1 / most);
  const kept = [];
  for (const number of sorted) if (!kept.length || number >= kept[kept.length - 1] * least) kept.push(number);
  return kept;
}

function drawBytes(found, scored, name) {
  const traces = scored.map(v => ({
    name: name(v), type: "scatter", mode: "markers", x: v.seeds.map(s => s.bytes), y: v.seeds.map(s => s.score),
    marker: { color: styleOf(v.id).color, symbol: styleOf(v.id).marker, size: 8 },
    text: v.seeds.map(s => `seed ${s.seed}`), hoverinfo: "x+y+name+text",
  })).filter(trace => trace.x.some(x => x !== null)).slice(0, 28);
  const heights = traces.flatMap(trace => trace.y);
  const caps = found.cap_bytes.map(cap => ({
    name: "cap", type: "scatter", mode: "lines", x: [cap, cap], y: [Math.min(...heights), Math.max(...heights)],
    line: { color: colourVariable("--ink"), dash: "dash", width: 1 }, hoverinfo: "x+name",
  }));
  draw("bytes", traces.length ? [...traces, ...caps] : [], {
    revision: found.title, x: { title: { text: "artifact + code (bytes)" }, exponentformat: "SI" },
    y: { title: { text: `${plotText(found.score)} (bits per byte)` } },
  }, `${found.score} against bytes, one mark a run.${caps.length ? " Dashed: the cap." : ""}`);
}

function bars(middles, intervals, color) {
  return {
    type: "data", symmetric: false, color, thickness: 1.5, width: 4,
    array: middles.map((m, i) => intervals[i] ? intervals[i][1] - m : 0),
    arrayminus: middles.map((m, i) => intervals[i] ? m - intervals[i][0] : 0),
  };
}

/** Draw curves of groups [{name, runs: [{points, switches, bytes_per_token}]}] with the chosen axes. */
function drawCurves(groups, choice) {
  const traces = [], named = new Set();
  let drawn = 0;
  groups.forEach((group, number) => {
    const { color, dash } = styleOf(group.variant);
    const curves = group.runs.map(run => ({ ...curveOf(run, choice), run })).filter(curve => curve.x.length);
    if (!curves.length) return;
    drawn += curves.length;
    const line = { color, dash, width: 1.8 }, name = plotText(shortened(group.name, 44));
    const style = { type: "scatter", mode: curves[0].x.length > 1 ? "lines" : "markers", line, marker: { color }, legendgroup: `g${number}` };
    if (choice.band && curves.length > 1) {
      const band = bandOf(curves);
      const edge = { type: "scatter", mode: "lines", line: { width: 0, color }, legendgroup: `g${number}`, showlegend: false, hoverinfo: "skip" };
      traces.push({ ...edge, x: band.x, y: band.low }, { ...edge, x: band.x, y: band.high, fill: "tonexty", fillcolor: color + "33" });
      traces.push({ ...style, name: `${name} (${curves.length} seeds)`, x: band.x, y: band.mean });
    } else {
      curves.forEach((curve, i) => traces.push({ ...style, name, x: curve.x, y: curve.y, showlegend: i === 0 || !choice.band, line: { ...line, dash: choice.band ? dash : DASHES[i % DASHES.length] }, ...(choice.band ? {} : { name: `${name} ${plotText(curve.run.seed)}`, legendgroup: undefined }) }));
    }
    for (const mark of switchesOn(curves[0])) {
      // One entry of the legend for a switch, however many curves have it.
      traces.push({
        type: "scatter", mode: "markers", x: [mark.x], y: [mark.y], name: `${plotText(mark.name)} is on`, legendgroup: `on ${mark.name}`,
        marker: { symbol: "diamond-open", size: 11, color: colourVariable("--ink") }, showlegend: !named.has(mark.name), hoverinfo: "x+name",
      });
      named.add(mark.name);
    }
  });
  const x = AXIS_TITLES[choice.x], y = AXIS_TITLES[choice.y];
  draw("curves", traces, {
    revision: [choice.x, choice.y, choice.logX, choice.logY].join(),
    x: { title: { text: x }, type: choice.logX ? "log" : "linear", exponentformat: "SI" },
    y: { title: { text: y }, type: choice.logY ? "log" : "linear", ...rangeWithoutStart(traces, choice) },
  }, `${y[0].toUpperCase()}${y.slice(1)} over ${x}, ${drawn} runs.${choice.band ? " A line with a band is the mean over seeds; the band goes from the lowest to the highest." : ""}${choice.smooth > 0 ? ` Smoothed by ${choice.smooth}.` : ""}`);
  return drawn;
}

/** Return the range of losses without the first tenth of a curve, whose fall would flatten the rest. */
function rangeWithoutStart(traces, choice) {
  if (choice.logY || !choice.y.endsWith("loss") && choice.y !== "val_bpb") return {};
  const values = traces.flatMap(trace => trace.y.length > 9 ? trace.y.slice(Math.floor(trace.y.length / 10)) : trace.y);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return Number.isFinite(low) ? { range: [low - 0.05 * (high - low || 1), high + 0.05 * (high - low || 1)] } : {};
}

function curveOf(run, choice) {
  const event = FIELDS.validation.indexOf(choice.y) > 2 ? "validation" : "train";
  const xAt = FIELDS[event].indexOf(choice.x === "bytes" ? "tokens" : choice.x), yAt = FIELDS[event].indexOf(choice.y);
  const factor = choice.x === "bytes" ? run.bytes_per_token : 1;
  const points = factor ? run.points[event].filter(p => p[xAt] !== null && p[yAt] !== null) : [];
  const kept = points.filter(p => (!choice.logX || p[xAt] > 0) && (!choice.logY || p[yAt] > 0));
  return { x: kept.map(p => p[xAt] * factor), y: smoothed(kept.map(p => p[yAt]), choice.smooth), steps: kept.map(p => p[0]) };
}

/** Return the exponential moving average with weight `keep` of the past, corrected for its start. */
function smoothed(values, keep) {
  let sum = 0, weight = 0;
  return values.map(value => {
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return sum / weight;
  });
}

/** Return mean, lowest and highest over curves, at the places of the first one that all of them reach. */
function bandOf(curves) {
  const end = Math.min(...curves.map(c => c.x[c.x.length - 1])), start = Math.max(...curves.map(c => c.x[0]));
  const x = curves[0].x.filter(at => at >= start && at <= end);
  const values = x.map(at => curves.map(curve => between(curve, at)));
  return {
    x, mean: values.map(v => v.reduce((a, b) => a + b, 0) / v.length),
    low: values.map(v => Math.min(...v)), high: values.map(v => Math.max(...v)),
  };
}

function between(curve, at) {
  let low = 0, high = curve.x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (curve.x[middle] <= at) low = middle; else high = middle;
  }
  if (high === low || curve.x[high] === curve.x[low]) return curve.y[high];
  const share = (at - curve.x[low]) / (curve.x[high] - curve.x[low]);
  return curve.y[low] + share * (curve.y[high] - curve.y[low]);
}

function switchesOn(curve) {
  return curve.run.switches.flatMap(({ name, step }) => {
    const at = curve.steps.findIndex(s => s >= step);
    return at < 0 ? [] : [{ name, x: curve.x[at], y: curve.y[at] }];
  });
}
