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
  share: "share of the budget", step: "step", tokens: "tokens", bytes: "bytes of text", train_seconds: "training seconds",
  train_loss: "training loss (nats per token)", val_loss: "validation loss (nats per token)",
  val_bpb: "validation score (bits per byte)", lr_multiplier: "learning-rate multiplier",
  tokens_per_second: "tokens per second",
};
const FIELDS = {
  train: ["step", "tokens", "train_seconds", "train_loss", "lr_multiplier", "tokens_per_second", "readings"],
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

const LETTER = 6.5;  // pixels that a letter of a legend is wide, with some room
const NARROW = 600;  // pixels of a window below which names and titles are shorter
const NEAR = 60;  // pixels outside the window that count as in view
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
    hovermode: "closest", annotations: axes.annotations || [], hoverlabel: { namelength: -1 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: colourVariable("--faint"), activecolor: colourVariable("--ink") },
    legend: { orientation: "h", traceorder: "normal", yref: "container", y: 0, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
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

/** Break names into lines that fit the plot, and return the rows of lines that the legend below the axes then has. */
function legendRows(traces, width) {
  const most = Math.max(12, Math.floor((width - 120) / LETTER)), named = traces.filter(trace => trace.showlegend !== false);
  const lines = named.map(trace => brokenAt(trace.name, most));
  named.forEach((trace, i) => { trace.name = lines[i].join("<br>"); });
  // Plotly gives each entry the width of the longest one.
  const inARow = Math.max(1, Math.floor((width - 80) / (LETTER * Math.max(...lines.flat().map(seenLength)) + 50)));
  let rows = 0;
  for (let i = 0; i < lines.length; i += inARow) rows += Math.max(...lines.slice(i, i + inARow).map(found => found.length));
  return rows;
}

/** Return the number of letters that a reader sees of a text with entities such as &lt;. */
function seenLength(text) {
  return text.replace(/&\w+;/g, "x").length;
}

/** Return the text in lines of at most so many characters, broken at spaces where there are any. */
function brokenAt(text, most) {
  const lines = [];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    if (last >= 0 && seenLength(lines[last]) + 1 + seenLength(word) <= most) lines[last] += ` ${word}`;
    else lines.push(...(word.match(new RegExp(`(?:&\\w+;|.){1,${most}}`, "g")) || [""]));
  }
  return lines;
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
    const line = { color, dash, width: 1.8 }, name = plotText(group.name);
    const style = { type: "scatter", mode: curves[0].x.length > 1 ? "lines" : "markers", line, marker: { color }, legendgroup: `g${number}` };
    if (choice.band && curves.length > 1) {
      const band = bandOf(curves);
      const edge = { type: "scatter", mode: "lines", line: { width: 0, color }, legendgroup: `g${number}`, showlegend: false, hoverinfo: "skip" };
      traces.push({ ...edge, x: band.x, y: band.low }, { ...edge, x: band.x, y: band.high, fill: "tonexty", fillcolor: color + "33" });
      traces.push({ ...style, name: `${name} (${curves.length} runs)`, x: band.x, y: band.mean });
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
  const x = AXIS_TITLES[choice.x], y = AXIS_TITLES[choice.y] || plotText(choice.y);
  draw("curves", traces, {
    revision: [choice.x, choice.y, choice.logX, choice.logY].join(),
    x: { title: { text: x }, type: choice.logX ? "log" : "linear", exponentformat: "SI", ...(choice.x === "share" ? { tickformat: ".0%" } : {}) },
    y: { title: { text: y }, type: choice.logY ? "log" : "linear", ...rangeWithoutStart(traces, choice) },
  }, `${y[0].toUpperCase()}${y.slice(1)} over ${x}, ${counted(drawn, "run")}.${groups.some(group => group.runs.length > 1) && choice.band ? " A line with a band is the mean over seeds; the band goes from the lowest to the highest." : ""}${choice.smooth > 0 ? ` Smoothed by ${choice.smooth}.` : ""}`);
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
  const factor = choice.x === "bytes" ? run.bytes_per_token : choice.x === "share" && !run.budget ? 0 : 1;
  const xOf = choice.x === "share" ? p => shareOf(p, run.budget) : p => p[xAt];
  const valueOf = isReading(choice.y) ? p => readingsOf(p)[choice.y] : p => p[yAt];
  const points = factor ? run.points[event].filter(p => hasValue(xOf(p)) && hasValue(valueOf(p))) : [];
  const kept = points.filter(p => (!choice.logX || xOf(p) > 0) && (!choice.logY || valueOf(p) > 0));
  return { x: kept.map(p => xOf(p) * factor), y: smoothed(kept.map(valueOf), choice.smooth), steps: kept.map(p => p[0]) };
}

/** Return the share of the training that is done at a point: steps and clock both limit it, and the nearer one ends it. */
function shareOf([step, , seconds], [budgetSeconds, iterations]) {
  if (budgetSeconds && !hasValue(seconds)) return null;
  return Math.min(1, Math.max(step / Math.max(iterations, 1), budgetSeconds ? seconds / budgetSeconds : 0));
}

/** Tell whether a value to draw is a number that a technique logs of itself, `technique/number`. */
const isReading = key => key.includes("/");

const readingsOf = point => point[FIELDS.train.indexOf("readings")] || {};

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
