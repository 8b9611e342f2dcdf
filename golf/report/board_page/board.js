"use strict";
// State of the board, its polling and its tables. Every name from a file enters the page as text, never as HTML.

const POLL_MS = 3000, FIRST_ROWS = 150, LONG_CELL = 24, MOST_SETTINGS = 8, MOST_CURVES = 60;
const byId = id => document.getElementById(id);
const choice = { sweep: "", filter: "", sort: "", down: false, selected: new Set(), x: "step", y: "train_loss", smooth: 0, logX: false, logY: false, band: true };
let overview = { root: "", runs: {}, settings: {}, sweeps: [] };
const NO_JOBS = { runs: [], about: "" };
let follows = true;  // whether runs that begin later are selected, too, as long as nobody has selected any
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
    else if (follows) selectSome();
    const hasNewJobs = await askJobs();
    if (found.isNew) { showSweeps(); await showVerdicts(); }
    if (found.isNew || hasNewJobs) showRuns();
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

/** Return the run's job on the cluster, which knows more of a run without a result than its files do. */
function jobOf(run) {
  return isOpen(run) ? jobs.runs.find(job => job.variant === run.variant && job.seed === run.seed) : undefined;
}

function showStatus() {
  const sweep = currentSweep(), listed = counted(Object.values(overview.runs));
  const parts = [listed ? `Runs: ${listed}.` : "There is no run yet."];
  if (jobs.runs.length) parts.push(`On the cluster: ${counted(jobs.runs)}.`);
  else if (sweep?.waiting) parts.push(`${sweep.waiting} ${sweep.waiting === 1 ? "run of this sweep waits" : "runs of this sweep wait"}.`);
  if (jobs.about) parts.push(`Rounds: ${jobs.about}.`);
  byId("root").textContent = overview.root;
  byId("status").textContent = parts.join(" ");
}

/** Return the numbers of runs by state, such as `3 ok, 1 unfinished`. */
function counted(runs) {
  const counts = {};
  for (const { state } of runs) counts[state] = (counts[state] || 0) + 1;
  return Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ");
}

function currentSweep() {
  return overview.sweeps.find(sweep => sweep.name === choice.sweep);
}

function showSweeps() {
  const options = [new Option("all runs", "")];
  for (const sweep of overview.sweeps) {
    const done = sweep.runs.filter(id => overview.runs[id] && !isOpen(overview.runs[id])).length;
    options.push(new Option(`${sweep.name} · ${done}/${sweep.runs.length + sweep.waiting} done`, sweep.name));
  }
  byId("sweep").replaceChildren(...options);
  byId("sweep").value = currentSweep() ? choice.sweep : "";
}

const isOpen = run => run.state === "unfinished";

// ---- table of runs

function runRows() {
  const sweep = currentSweep();
  const ids = sweep ? sweep.runs.filter(id => id in overview.runs) : Object.keys(overview.runs);
  const words = choice.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const waiting = jobs.runs.filter(job => !ids.some(id => overview.runs[id].variant === job.variant && overview.runs[id].seed === job.seed));
  // A job that has not started has no folder, and its row nothing to show but what it waits for.
  const listed = [...ids.map(id => [id, overview.runs[id]]), ...waiting.map(job => [`${job.name} seed ${job.seed}`, { ...job, isJob: true, reason: job.detail }])];
  const rows = listed.map(([id, run]) => ({ id, run, settings: overview.settings[run.variant] || {} }));
  return rows.filter(row => words.every(word => searched(row).includes(word)));
}

function searched({ id, run, settings }) {
  const listed = Object.entries(settings).map(([key, value]) => `${key}=${value}`);
  return [id, run.name, run.state, run.reason, `seed=${run.seed}`, ...listed].join(" ").toLowerCase();
}

function runColumns(rows) {
  const number = digits => value => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const plain = (key, title, digits) => ({ key, title, value: row => row.run[key], shown: number(digits) });
  const columns = [
    { key: "run", title: "run", isText: true, value: row => row.id },
    { key: "state", title: "state", isText: true, value: row => stateOf(row.run) },
    plain("val_bpb", "final bpb", 4),
    ...settingKeys(rows).map(key => ({ key, title: key, value: row => asNumber(row.settings[key]), shown: String })),
    plain("pre_quant_bpb", "pre-quant bpb", 4), plain("post_quant_bpb", "post-quant bpb", 4),
    plain("sliding_bpb", "sliding bpb", 4), plain("ttt_bpb", "TTT bpb", 4), plain("total_bytes", "bytes", 0),
    plain("steps", "steps", 0), plain("step_ms", "step ms", 1), plain("train_seconds", "train s", 1),
    plain("eval_seconds", "eval s", 1), { key: "machine", title: "machine", isText: true, value: row => row.run.machine },
  ];
  return columns.filter(column => rows.some(row => hasValue(column.value(row))));
}

const hasValue = value => value !== null && value !== undefined && value !== "";

function asNumber(text) {
  return hasValue(text) && text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function settingKeys(rows) {
  const values = {};
  for (const { settings } of rows) for (const [key, value] of Object.entries(settings)) (values[key] ||= new Set()).add(value);
  const variants = new Set(rows.map(row => row.run.variant)).size;
  const present = key => new Set(rows.filter(row => key in row.settings).map(row => row.run.variant)).size;
  const differ = Object.keys(values).filter(key => values[key].size > 1 || (present(key) < variants && !key.startsWith("tech.")));
  return differ.slice(0, MOST_SETTINGS);
}

function stateOf(run) {
  const job = jobOf(run);
  if (job) return job.detail ? `${job.state}: ${job.detail}` : job.state;
  if (!isOpen(run)) return run.reason ? `${run.state}: ${run.reason}` : run.state;
  if (run.written_at === null || run.written_at === undefined) return "unfinished: no step is logged yet";
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - run.written_at));
  const ago = seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  return `unfinished: last line ${ago} ago`;
}

function showRuns() {
  const rows = runRows(), columns = runColumns(rows);
  const by = columns.find(column => column.key === choice.sort);
  if (by) rows.sort((a, b) => compared(by.value(a), by.value(b)) * (choice.down ? -1 : 1));
  const shown = showsAllRows ? rows : rows.slice(0, FIRST_ROWS);
  byId("all-rows").hidden = shown.length === rows.length;
  byId("all-rows").textContent = `Show all ${rows.length} rows`;
  byId("runs-title").textContent = `Runs (${rows.length}${choice.filter || choice.sweep ? ` of ${Object.keys(overview.runs).length}` : ""})`;
  const focused = document.activeElement?.dataset?.run ?? null, sorted = document.activeElement?.dataset?.column ?? null;
  const head = document.createElement("tr");
  head.append(cell("th", "show", "mark"), ...columns.map(column => headCell(column)));
  const body = document.createElement("tbody");
  body.append(...shown.map(row => runRow(row, columns)));
  const top = document.createElement("thead");
  top.append(head);
  byId("run-table").replaceChildren(top, body);
  // The table is made anew when a file changes; whoever uses the keyboard stays where they were.
  for (const element of byId("run-table").querySelectorAll("input, button")) {
    if ((focused !== null && element.dataset.run === focused) || (sorted !== null && element.dataset.column === sorted)) element.focus();
  }
}

function compared(a, b) {
  if (!hasValue(a) || !hasValue(b)) return hasValue(a) ? -1 : hasValue(b) ? 1 : 0;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function cell(kind, text, style) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (style) made.className = style;
  if (kind === "th") made.scope = "col";
  return made;
}

/** Return a small square in the variant's colour, which it has in every plot. */
function swatch(variant) {
  const made = document.createElement("span");
  made.className = "swatch";
  made.setAttribute("aria-hidden", "true");
  const { color, isFilled } = styleOf(variant);
  made.style.border = `2px solid ${color}`;
  made.style.background = isFilled ? color : "none";
  return made;
}

function headCell(column) {
  const made = cell("th", "", column.isText ? "text" : "");
  const button = document.createElement("button");
  const isSorted = choice.sort === column.key;
  button.type = "button";
  button.textContent = column.title + (isSorted ? (choice.down ? " ▼" : " ▲") : "");
  button.dataset.column = column.key;
  button.addEventListener("click", () => {
    choice.down = isSorted && !choice.down;
    choice.sort = column.key;
    showRuns();
    writeAddress();
  });
  made.setAttribute("aria-sort", isSorted ? (choice.down ? "descending" : "ascending") : "none");
  made.append(button);
  return made;
}

function runRow(row, columns) {
  const made = document.createElement("tr"), box = document.createElement("input"), mark = cell("td", "", "mark");
  box.type = "checkbox";
  box.checked = choice.selected.has(row.id);
  box.dataset.run = row.id;
  box.setAttribute("aria-label", `show ${row.id}`);
  box.addEventListener("change", () => {
    follows = false;
    choice.selected[box.checked ? "add" : "delete"](row.id);
    made.setAttribute("aria-selected", box.checked);
    // The box itself stays where it is, or the keyboard would lose its place.
    mark.querySelector(".swatch")?.remove();
    if (box.checked) mark.append(swatch(row.run.variant));
    changed();
  });
  made.setAttribute("aria-selected", box.checked);
  if (!row.run.isJob) mark.append(box);
  if (box.checked) mark.append(swatch(row.run.variant));
  made.append(mark);
  for (const column of columns) {
    const value = column.value(row);
    const text = hasValue(value) ? (typeof value === "number" && column.shown ? column.shown(value) : String(value)) : "–";
    made.append(cell("td", text, textStyle(column.isText, text)));
  }
  return made;
}

// ---- verdicts of a sweep

async function showVerdicts() {
  byId("verdicts").hidden = !currentSweep();
  shownSweep = null;
  if (!currentSweep()) return;
  const name = choice.sweep;
  let found;
  try {
    found = (await ask(`api/sweep?name=${encodeURIComponent(name)}`)).values;
  } catch (error) {
    found = { title: name, command: "", columns: [], rows: [], notes: [error.message], variants: [], score: "", swept: "", confidence: 0, reference: null, cap_bytes: [] };
  }
  if (name !== choice.sweep) return;
  const listed = currentSweep().runs.map(id => overview.runs[id]?.variant).filter(Boolean);
  takeStyles(name, [...listed, ...found.variants.map(variant => variant.id)]);
  byId("verdicts-title").textContent = found.title;
  byId("command").textContent = found.command;
  byId("notes").replaceChildren(...found.notes.map(note => cell("li", note)));
  const top = document.createElement("thead"), body = document.createElement("tbody"), head = document.createElement("tr");
  head.append(...found.columns.map(column => cell("th", column.title, column.is_text ? "text" : "")));
  top.append(head);
  found.rows.forEach((values, number) => {
    const row = document.createElement("tr");
    row.append(...values.map((text, i) => cell("td", text, verdictStyle(found.columns[i], text))));
    if (found.variants[number]) row.firstChild.prepend(swatch(found.variants[number].id));
    body.append(row);
  });
  byId("verdict-table").replaceChildren(top, body);
  shownSweep = found;
  drawSweep(found);
}

const textStyle = (isText, text) => isText ? (text.length > LONG_CELL ? "text long" : "text") : "";

function verdictStyle(column, text) {
  const kind = column.title === "verdict" ? text.split(":")[0] : "";
  return [textStyle(column.is_text, text), kind === "better" || kind === "worse" ? kind : ""].join(" ").trim();
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

const chosenRuns = () => [...choice.selected].filter(id => id in overview.runs).slice(0, MOST_CURVES);

/** Draw the known curves of these runs. Return how many there are. */
function drawChosen(ids) {
  const groups = new Map();
  for (const id of ids) {
    const run = overview.runs[id], key = choice.band ? run.variant : id;
    if (!groups.has(key)) groups.set(key, { name: nameOf(run), variant: run.variant, runs: [] });
    groups.get(key).runs.push({ ...curves[id], bytes_per_token: run.bytes_per_token, seed: `seed ${run.seed}` });
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

function nameOf(run) {
  const settings = overview.settings[run.variant] || {};
  const rows = [...choice.selected].filter(id => id in overview.runs).map(id => ({ run: overview.runs[id], settings: overview.settings[overview.runs[id].variant] || {} }));
  const keys = settingKeys(rows).filter(key => key in settings).slice(0, 3);
  return keys.length ? keys.map(key => `${key}=${settings[key]}`).join(" ") : `${run.name} ${run.variant}`;
}

// ---- choices, kept in the address so that a view can be bookmarked

function writeAddress() {
  const kept = new URLSearchParams({ sweep: choice.sweep, filter: choice.filter, sort: choice.sort, down: choice.down, x: choice.x, y: choice.y, smooth: choice.smooth, logX: choice.logX, logY: choice.logY, band: choice.band });
  for (const id of follows ? [] : [...choice.selected].slice(0, MOST_CURVES)) kept.append("run", id);
  history.replaceState(null, "", `#${kept}`);
}

function readAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const key of ["sweep", "filter", "sort", "x", "y"]) if (kept.has(key)) choice[key] = kept.get(key);
  for (const key of ["down", "logX", "logY", "band"]) if (kept.has(key)) choice[key] = kept.get(key) === "true";
  choice.smooth = Number(kept.get("smooth")) || 0;
  if (!(choice.x in AXIS_TITLES)) choice.x = "step";
  if (!(choice.y in AXIS_TITLES)) choice.y = "train_loss";
  choice.selected = new Set(kept.getAll("run"));
  if (!kept.has("sweep") && overview.sweeps.length) choice.sweep = overview.sweeps[0].name;
  follows = !choice.selected.size;
  if (follows) selectSome();
  byId("filter").value = choice.filter;
  byId("x").value = choice.x;
  byId("y").value = choice.y;
  byId("smooth").value = choice.smooth;
  byId("log-x").checked = choice.logX;
  byId("log-y").checked = choice.logY;
  byId("band").checked = choice.band;
}

/** Select what a newcomer wants to see: the sweep's runs, or else a few of all runs. */
function selectSome() {
  const sweep = currentSweep();
  choice.selected = new Set((sweep ? sweep.runs.slice(0, 40) : Object.keys(overview.runs).slice(0, 5)));
}

function changed() {
  writeAddress();
  showCurves().catch(error => { byId("status").textContent = error.message; });
}

function listen() {
  byId("sweep").addEventListener("change", async event => {
    choice.sweep = event.target.value;
    follows = true;
    selectSome();
    // The verdicts come first, because their order says which variant has which colour.
    await showVerdicts();
    await askJobs();
    showRuns();
    showStatus();
    changed();
  });
  byId("filter").addEventListener("input", event => { choice.filter = event.target.value; showRuns(); writeAddress(); });
  byId("select-shown").addEventListener("click", () => { follows = false; choice.selected = new Set(runRows().filter(row => !row.run.isJob).map(row => row.id)); showRuns(); changed(); });
  byId("select-none").addEventListener("click", () => { follows = false; choice.selected.clear(); showRuns(); changed(); });
  byId("all-rows").addEventListener("click", () => { showsAllRows = true; showRuns(); });
  const inputs = { x: "x", y: "y", smooth: "smooth", "log-x": "logX", "log-y": "logY", band: "band" };
  for (const [id, key] of Object.entries(inputs)) {
    byId(id).addEventListener("input", event => {
      const input = event.target;
      choice[key] = input.type === "checkbox" ? input.checked : input.type === "range" ? Number(input.value) : input.value;
      changed();
    });
  }
  for (const form of document.forms) form.addEventListener("submit", event => event.preventDefault());
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
  if (shownSweep) drawSweep(shownSweep);
  drawChosen(chosenRuns().filter(id => curves[id]));
}

async function poll() {
  // A page that nobody looks at asks for nothing.
  if (!document.hidden || isFirst) await refresh();
  if (!saved) setTimeout(poll, POLL_MS);
}

listen();
poll();
