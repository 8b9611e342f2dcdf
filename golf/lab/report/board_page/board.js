"use strict";
// State of the board, its polling, its choices, and the address that keeps them.

const POLL_MS = 3000, MOST_CURVES = 60, BEST = 8;
const byId = id => document.getElementById(id);
const choice = {
  sweep: "", filter: "", noShort: false, sort: "", down: false, verdictSort: "", verdictDown: false, reference: "", group: "", page: "", side: false,
  selected: new Set(), over: "", gridRows: "", gridColumns: "", x: "step", y: "train_loss", smooth: 0, logX: false, logY: false, band: true,
};
const KEPT = Object.keys(choice).filter(key => key !== "selected");  // what the address holds, besides the selected runs
let overview = { root: "", runs: {}, settings: {}, sweeps: [] };
const NO_JOBS = { runs: [], about: "" };
let follows = true;  // whether the best runs are selected as they come, as long as nobody has selected any
let shownSweep = null;  // answer that the verdicts and their plots show
let curves = {}, jobs = NO_JOBS, isFirst = true, showsAllRows = false;
const answers = new Map();  // address → [ETag, values]

// A page that was saved as one file has the answers in it and asks nobody.
const saved = byId("saved") ? JSON.parse(byId("saved").textContent) : null;

async function ask(address) {
  if (saved) return { values: saved[address.split("?")[0]], isNew: true };
  const known = answers.get(address);
  const response = await fetch(address, { cache: "no-store", headers: known ? { "If-None-Match": known[0] } : {} });
  if (response.status === 304) return { values: known[1], isNew: false };
  const values = await response.json();
  if (!response.ok) throw new Error(values.error || response.statusText);
  if (answers.size > 50) answers.clear();
  answers.set(address, [response.headers.get("ETag"), values]);
  return { values, isNew: true };
}

async function refresh() {
  try {
    const found = await ask("api/overview");
    overview = found.values;
    if (isFirst) readAddress();
    const hasNewJobs = await askJobs();
    if (found.isNew) { showSweeps(); await showVerdicts(); }
    if (follows) selectSome();
    if (found.isNew || hasNewJobs) showRuns();
    if (choice.page && (found.isNew || isFirst)) await showPage();
    showProgress();
    showSides();
    await showCurves();
    showStatus();
    isFirst = false;
    document.body.dataset.polls = Number(document.body.dataset.polls || 0) + 1;
  } catch (error) {
    byId("status").textContent = `Not up to date: ${error.message}. Is golf board still running?`;
  }
}

/** Ask what the cluster says about the sweep's runs without a result. Return whether that has changed. */
async function askJobs() {
  const before = jobs;
  jobs = saved || !currentSweep() ? NO_JOBS : (await ask(`api/jobs?name=${encodeURIComponent(choice.sweep)}`)).values;
  return jobs !== before;
}

function showStatus() {
  const sweep = currentSweep(), listed = countedStates(Object.values(overview.runs));
  const parts = [listed ? `Runs: ${listed}.` : saved ? "Imported runs have no curves." : "There is no run yet."];
  if (jobs.runs.length) parts.push(`On the cluster: ${countedStates(jobs.runs)}.`);
  else if (sweep?.waiting) parts.push(`${sweep.waiting} ${sweep.waiting === 1 ? "run of this sweep waits" : "runs of this sweep wait"}.`);
  if (jobs.about) parts.push(`Rounds: ${jobs.about}.`);
  byId("root").textContent = overview.root;
  if (byId("status").textContent !== parts.join(" ")) byId("status").textContent = parts.join(" ");
}

function currentSweep() {
  return overview.sweeps.find(sweep => sweep.name === choice.sweep);
}

function showSweeps() {
  const options = [new Option("all runs", "")];
  for (const sweep of overview.sweeps) {
    const done = sweep.runs.filter(id => overview.runs[id] && !isOpen(overview.runs[id])).length;
    const all = sweep.runs.length + sweep.waiting;
    options.push(new Option(all || !saved ? `${sweep.name} · ${done}/${all} done` : sweep.name, sweep.name));
  }
  byId("sweep").replaceChildren(...options);
  byId("sweep").value = currentSweep() ? choice.sweep : "";
}

async function showVerdicts() {
  byId("verdicts").hidden = !currentSweep() || Boolean(choice.page);
  if (!currentSweep()) {
    shownSweep = null;
    takeStyles("", ranked(Object.values(overview.runs)));
    drawAllScores();
    return;
  }
  const name = choice.sweep, reference = choice.reference;
  let found, isNew = true;
  try {
    ({ values: found, isNew } = await ask(`api/sweep?name=${encodeURIComponent(name)}${reference ? `&reference=${encodeURIComponent(reference)}` : ""}`));
  } catch (error) {
    found = { title: name, command: "", columns: [], rows: [], notes: [error.message], variants: [], score: "", score_field: "val_bpb", swept: [], confidence: 0, looks: null, reference: null, reference_id: "", cap_bytes: [], field: null };
  }
  if (name !== choice.sweep || reference !== choice.reference) return;
  const first = found.variants.filter(v => v.id === found.reference_id);
  takeStyles(name, [...first, ...found.variants].map(variant => variant.id));
  byId("verdicts-title").textContent = found.title;
  byId("command").textContent = found.command;
  byId("notes").replaceChildren(...found.notes.map(note => make("li", note)));
  showVerdictTable(found);
  showField(found);
  if (isNew || shownSweep !== found) { shownSweep = found; drawAllScores(); }
}

async function chooseReference(id) {
  choice.reference = id;
  writeAddress();
  await showVerdicts();
}

// ---- curves

/** Show the curves of the selected runs. Those that nobody sees are not asked for. */
async function showCurves() {
  if (isNear(byId("curves-section"))) await askCurves();
  else whenNear(byId("curves-section"), () => askCurves().catch(error => { byId("status").textContent = error.message; }));
}

async function askCurves() {
  const ids = chosenRuns();
  if (ids.length) {
    const parts = ids.map(id => `run=${encodeURIComponent(id)}&have=${haveOf(curves[id])}`);
    const { values } = await ask(`api/curves?${parts.join("&")}`);
    for (const id of ids) curves[id] = joined(curves[id], values[id]);
  }
  offerReadings(ids);
  const drawn = drawChosen(ids);
  document.body.dataset.points = ids.reduce((sum, id) => sum + curves[id].points.train.length, 0);
  if (!drawn) byId("why").textContent = ids.length ? "The selected runs have no such curve." : "Select runs in the table below to see their curves.";
  const explains = drawn && ids.length === 2 && !saved;
  if (explains) {
    const [one, other] = ids;
    const found = await ask(`api/why?one=${encodeURIComponent(one)}&other=${encodeURIComponent(other)}`).catch(error => ({ values: { lines: [error.message] } }));
    byId("why").textContent = found.values.lines.join("\n");
  }
  byId("why").hidden = Boolean(drawn) && !explains;
}

/** Offer the numbers that techniques of these runs log of themselves as values of the curves. */
function offerReadings(ids) {
  const select = byId("y"), known = new Set([...select.options].map(option => option.value));
  const told = ids.flatMap(id => curves[id].points.train.slice(-1).flatMap(point => Object.keys(readingsOf(point))));
  for (const key of new Set([...told, ...(isReading(choice.y) ? [choice.y] : [])])) {
    if (!known.has(key)) select.add(new Option(key, key));
  }
  select.value = choice.y;
}

const chosenRuns = () => (choice.page ? [choice.page] : [...choice.selected]).filter(id => id in overview.runs).slice(0, MOST_CURVES);

/** Draw the known curves of these runs. Return how many there are. */
function drawChosen(ids) {
  const groups = new Map();
  for (const id of ids) {
    const run = overview.runs[id], key = choice.band ? run.variant : id;
    if (!groups.has(key)) groups.set(key, { name: nameOf(run), variant: run.variant, runs: [] });
    groups.get(key).runs.push({ ...curves[id], bytes_per_token: run.bytes_per_token, budget: overview.budgets?.[run.variant], seed: `seed ${run.seed}` });
  }
  return drawCurves([...groups.values()], choice);
}

const haveOf = known => known ? `${known.generation}.${known.points.train.length}.${known.points.validation.length}` : "0.0.0";

/** Return the known points followed by those that were added after them. */
function joined(known, added) {
  const points = {};
  for (const [event, found] of Object.entries(added.points)) {
    points[event] = [...(known ? known.points[event].slice(0, added.first[event]) : []), ...found];
  }
  return { generation: added.generation, points, switches: added.switches };
}

/** Return what tells a run's variant from the others that are listed: its swept values, or its name. */
function nameOf(run) {
  const settings = shownSweep?.variants.find(v => v.id === run.variant)?.values || {}, swept = Object.keys(settings);
  const values = swept.length ? settings : overview.settings[run.variant] || {}, keys = swept.length ? swept : differingKeys().filter(key => key in values);
  const short = shortKeys(keys);
  return keys.length ? keys.map(key => `${short.get(key)}=${values[key]}`).join(" ") : `${run.name} ${run.variant}`;
}

let differing = [null, null, []];  // overview and sweep that the settings were looked up for, and these

function differingKeys() {
  if (differing[0] !== overview || differing[1] !== choice.sweep) {
    const ids = currentSweep()?.runs || Object.keys(overview.runs), runs = ids.map(id => overview.runs[id]).filter(Boolean);
    differing = [overview, choice.sweep, settingKeys(runs.map(run => ({ run, settings: overview.settings[run.variant] || {} }))).slice(0, 4)];
  }
  return differing[2];
}

// ---- choices, kept in the address so that a view can be bookmarked

/** Return the address of the view, with these changes. */
function addressOf(changes) {
  const kept = new URLSearchParams(), view = { ...choice, ...changes };
  for (const key of KEPT) if (view[key] !== "" && view[key] !== false && view[key] !== 0 || key === "sweep" || key === "band") kept.set(key, view[key]);
  for (const id of follows ? [] : [...choice.selected].slice(0, MOST_CURVES)) kept.append("run", id);
  return kept.toString();
}

function writeAddress() {
  history.replaceState(null, "", `#${addressOf({})}`);
}

function readAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const key of KEPT) {
    if (typeof choice[key] === "boolean") choice[key] = kept.has(key) ? kept.get(key) === "true" : key === "band";
    else if (key === "smooth") choice.smooth = Number(kept.get("smooth")) || 0;
    else choice[key] = kept.get(key) || "";
  }
  // Under a clock slower variants are further in their warm-down at the same step, and look better than they are.
  const hasClock = Object.values(overview.budgets || {}).some(([seconds]) => seconds > 0);
  if (!(choice.x in AXIS_TITLES)) choice.x = hasClock ? "share" : "step";
  if (!(choice.y in AXIS_TITLES) && !isReading(choice.y)) choice.y = "train_loss";
  choice.selected = new Set(kept.getAll("run"));
  if (!kept.has("sweep") && overview.sweeps.some(sweep => sweep.runs.length || saved)) choice.sweep = overview.sweeps[0].name;
  follows = !choice.selected.size;
  for (const [id, key] of Object.entries(INPUTS)) byId(id)[typeof choice[key] === "boolean" ? "checked" : "value"] = choice[key];
  byId("side").open = choice.side;
}

/** Select what a newcomer wants to see: the runs of the best eight variants, or the first ones where none has a score. */
function selectSome() {
  const rows = runRows().filter(row => !row.run.isJob), scored = shownSweep?.variants.filter(v => v.mean !== null).map(v => v.id) || [];
  const variants = [...new Set([...scored, ...ranked(rows.map(row => row.run))])], best = variants.slice(0, BEST);
  // All others are compared with the reference, so it is always shown.
  if (shownSweep?.reference_id && variants.indexOf(shownSweep.reference_id) >= BEST) best[BEST - 1] = shownSweep.reference_id;
  const each = Math.floor(MOST_CURVES / Math.max(1, best.length));
  choice.selected = new Set(best.flatMap(id => rows.filter(row => row.run.variant === id).slice(0, each).map(row => row.id)));
}

/** Return the variants of the runs, that of the best run first. */
function ranked(runs) {
  const score = run => run.state === "ok" ? run.val_bpb : null;
  return [...new Set([...runs].sort((a, b) => compared(score(a), score(b))).map(run => run.variant))];
}

function changed() {
  writeAddress();
  showSides();
  showCurves().catch(error => { byId("status").textContent = error.message; });
}

const INPUTS = {
  filter: "filter", "no-short": "noShort", group: "group", over: "over", "grid-rows": "gridRows", "grid-columns": "gridColumns",
  x: "x", y: "y", smooth: "smooth", "log-x": "logX", "log-y": "logY", band: "band",
};

/** Show again what the changed choice touches. */
function showChange(key) {
  if (key === "filter" || key === "noShort" || key === "group") {
    if (follows) selectSome();
    showRuns();
    if (shownSweep) showVerdictTable(shownSweep);
  }
  if (["over", "gridRows", "gridColumns", "filter", "noShort"].includes(key)) drawAllScores();
  changed();
}

async function showAll() {
  showSweeps();
  // The verdicts come first, because their order says which variant has which colour.
  await showVerdicts();
  await askJobs();
  if (follows) selectSome();
  showRuns();
  showProgress();
  showStatus();
  await showPage();
}

function listen() {
  byId("sweep").addEventListener("change", async event => {
    Object.assign(choice, { sweep: event.target.value, reference: "", over: "", gridRows: "", gridColumns: "", page: "", group: "" });
    follows = true;
    await showAll();
    changed();
  });
  byId("select-shown").addEventListener("click", () => { follows = false; choice.selected = new Set(runRows().filter(row => !row.run.isJob).map(row => row.id)); showRuns(); changed(); });
  byId("select-best").addEventListener("click", () => { follows = true; selectSome(); showRuns(); changed(); });
  byId("select-none").addEventListener("click", () => { follows = false; choice.selected.clear(); showRuns(); changed(); });
  byId("all-rows").addEventListener("click", () => { showsAllRows = true; showRuns(); });
  byId("side").addEventListener("toggle", () => { choice.side = byId("side").open; changed(); });
  for (const [id, key] of Object.entries(INPUTS)) {
    byId(id).addEventListener("input", event => {
      const input = event.target;
      choice[key] = input.type === "checkbox" ? input.checked : input.type === "range" ? Number(input.value) : input.value;
      showChange(key);
    });
  }
  for (const form of document.forms) form.addEventListener("submit", event => event.preventDefault());
  addEventListener("popstate", async () => { readAddress(); await showAll(); await showCurves(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => layOut(true));
  addEventListener("afterprint", () => layOut(false));
}

/** Draw everything for paper, light and as wide as a sheet, or for the window again. */
function layOut(onPaper) {
  isOnPaper = onPaper;
  document.documentElement.classList.toggle("paper", onPaper);
  redraw();
  // A printer does not wait for a server; a file has all curves at once.
  if (onPaper && saved) askCurves();
}

function redraw() {
  drawAllScores();
  drawChosen(chosenRuns().filter(id => curves[id]));
}

async function poll() {
  // A page that nobody looks at asks for nothing.
  if (!document.hidden || isFirst) await refresh();
  if (!saved) setTimeout(poll, POLL_MS);
}

listen();
poll();
