"use strict";
// Tables of the board: verdicts, public field, side by side, runs; and how far running runs are.
// Every name from a file enters the page as text, never as HTML.

const FIRST_ROWS = 150, LONG_CELL = 24, MOST_SETTINGS = 8, MOST_SIDES = 8, MOST_BARS = 12;
const SHORT = 0.1;  // share of the steps of the longest listed run below which a run that has ended is short
const NUMBERS = [
  ["val_bpb", "final bpb", 4], ["pre_quant_bpb", "pre-quant bpb", 4], ["post_quant_bpb", "post-quant bpb", 4], ["sliding_bpb", "sliding bpb", 4],
  ["ttt_bpb", "TTT bpb", 4], ["total_bytes", "bytes", 0], ["steps", "steps", 0], ["step_ms", "step ms", 1], ["train_seconds", "train s", 1], ["eval_seconds", "eval s", 1],
];
const isOpen = run => run.state === "unfinished";
const hasValue = value => value !== null && value !== undefined && value !== "";
const textStyle = (isText, text) => isText ? (text.length > LONG_CELL ? "text long" : "text") : "";

function shownNumber(value, digits) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Return a number with its noun, such as `1 run` or `3,000 runs`. */
function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function duration(seconds) {
  return seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function make(kind, text, style) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  return made;
}

function cell(kind, text, style) {
  const made = make(kind, text, style);
  if (kind === "th") made.scope = "col";
  return made;
}

/** Return a small square in the variant's colour, which it has in every plot. */
function swatch(variant) {
  const made = make("span", "", "swatch"), { color, isFilled } = styleOf(variant);
  made.setAttribute("aria-hidden", "true");
  made.style.border = `2px solid ${color}`;
  made.style.background = isFilled ? color : "none";
  return made;
}

/** Return a link to the page of a run. */
function runLink(id, text) {
  const made = make("a", text);
  made.href = `#${addressOf({ page: id })}`;
  made.dataset.key = `link ${id}`;
  made.addEventListener("click", event => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openPage(id);
  });
  return made;
}

/** Replace the rows of a table. Whoever uses the keyboard stays on the control that they were on. */
function fill(table, head, rows) {
  const key = table.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const top = make("thead"), body = make("tbody");
  top.append(head);
  body.append(...rows);
  table.replaceChildren(top, body);
  if (key) [...table.querySelectorAll("[data-key]")].find(element => element.dataset.key === key)?.focus();
}

/** Return a heading that sorts by its column; `sorted` names the properties of `choice` with the column and direction. */
function headCell(column, [by, down], show) {
  const made = cell("th", "", column.isText ? "text" : ""), button = make("button"), isSorted = choice[by] === column.key;
  button.type = "button";
  button.textContent = column.title + (isSorted ? (choice[down] ? " ▼" : " ▲") : "");
  button.dataset.key = `column ${column.key}`;
  if (column.full) button.title = column.full;
  button.addEventListener("click", () => {
    choice[down] = isSorted && !choice[down];
    choice[by] = column.key;
    show();
    writeAddress();
  });
  made.setAttribute("aria-sort", isSorted ? (choice[down] ? "descending" : "ascending") : "none");
  made.append(button);
  return made;
}

function compared(a, b) {
  if (!hasValue(a) || !hasValue(b)) return hasValue(a) ? -1 : hasValue(b) ? 1 : 0;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Return the number that a cell shows, such as −0.0066 or 15,847,642; any other text as it is, a dash as nothing. */
function asNumber(text) {
  if (!hasValue(text) || text === "–") return null;
  const plain = text.replace("−", "-").replace(/,(?=\d{3}\b)/g, "").replace(/^[<+]/, "").trim();
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : text;
}

/** Return the last parts of setting names by name, where they still tell them apart. */
function shortKeys(keys) {
  const ends = keys.map(key => key.split(".").pop());
  return new Map(keys.map((key, i) => [key, ends.filter(end => end === ends[i]).length === 1 ? ends[i] : key]));
}

const wordsOf = () => choice.filter.toLowerCase().split(/\s+/).filter(Boolean);

// ---- how far runs are

const now = () => saved ? saved.written_at : Date.now() / 1000;

/** Return the run's job on the cluster, which knows more of a run without a result than its files do. */
function jobOf(run) {
  return isOpen(run) ? jobs.runs.find(job => job.variant === run.variant && job.seed === run.seed) : undefined;
}

/** Return the word for what a run does now, and the rest of the sentence. */
function activity(run) {
  const job = jobOf(run);
  if (job) return [job.state, job.detail || ""];
  if (!isOpen(run)) return [run.state, run.reason || ""];
  const quiet = hasValue(run.written_at) ? now() - run.written_at : null;
  if (!run.steps) {
    if (run.is_held) return ["running", "no step is logged yet"];
    return quiet !== null && quiet < 60 ? ["running", "no step is logged yet"] : ["silent", "no step is logged, and no process on this machine is at work"];
  }
  const done = run.share >= 1, patience = Math.max(30, 4 * (run.line_seconds || 0), done ? 600 : 0);
  const where = hasValue(run.iterations) ? `step ${shownNumber(run.steps, 0)} of ${shownNumber(run.iterations, 0)}, ${Math.floor(100 * run.share)} %` : `step ${run.steps}`;
  if (quiet <= patience || (done && run.is_held)) return ["running", done ? `${where}, the score follows` : `${where}, ${duration(run.seconds_left)} left`];
  const pace = run.line_seconds ? `, its lines take ${duration(run.line_seconds)}` : "";
  return ["silent", `${where}, last line ${duration(quiet)} ago${pace}${run.is_held ? "" : "; no process on this machine is at work"}`];
}

function stateOf(run) {
  return activity(run).filter(Boolean).join(": ");
}

/** Return the numbers of runs by state, such as `3 ok, 1 running`. */
function countedStates(runs) {
  const counts = {};
  for (const run of runs) { const [word] = activity(run); counts[word] = (counts[word] || 0) + 1; }
  return Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ");
}

function bar(share, label) {
  const made = make("progress");
  made.max = 1;
  made.value = share;
  made.setAttribute("aria-label", label);
  return made;
}

/** Return how long `missing` runs take, as many at once as are running, at the mean of the ended ones; 0 if nothing is known. */
function sweepSeconds(ids, missing, atOnce) {
  const seconds = ids.map(id => overview.runs[id]).filter(run => !isOpen(run) && run.train_seconds).map(run => run.train_seconds + (run.eval_seconds || 0));
  return atOnce && seconds.length ? missing * seconds.reduce((sum, value) => sum + value, 0) / seconds.length / atOnce : 0;
}

/** Show a bar for the sweep while it goes on, and one for each running or silent run. */
function showProgress() {
  const sweep = currentSweep(), ids = sweep ? sweep.runs.filter(id => overview.runs[id]) : Object.keys(overview.runs);
  const open = ids.filter(id => isOpen(overview.runs[id])), running = open.filter(id => activity(overview.runs[id])[0] === "running");
  const shown = [...running, ...(sweep ? open.filter(id => !running.includes(id)) : [])].slice(0, MOST_BARS), lines = [];
  if (sweep && (open.length || sweep.waiting) && ids.length) {
    const all = ids.length + sweep.waiting, ended = ids.length - open.length;
    const share = (ended + open.reduce((sum, id) => sum + Math.min(overview.runs[id].share || 0, 1), 0)) / all;
    const left = sweepSeconds(ids, all * (1 - share), running.length), end = left ? `, at least ${duration(left)} left` : "";
    // A sweep that looks after every round lists the runs of its rounds so far.
    const whole = sweep.rounds ? `the rounds so far, of at most ${sweep.rounds}` : "the sweep";
    lines.push([bar(share, "the sweep"), make("span", `${ended} of ${counted(all, "run")} done, ${Math.floor(100 * share)} % of ${whole}${end}`)]);
  }
  for (const id of shown) {
    const run = overview.runs[id], [word, detail] = activity(run);
    const losses = [hasValue(run.train_loss) && `loss ${run.train_loss.toFixed(3)}`, hasValue(run.validation_bpb) && `validation ${run.validation_bpb.toFixed(4)} bpb`];
    const text = [detail, ...losses.filter(Boolean)].join(", ");
    lines.push([bar(Math.min(run.share || 0, 1), id), runLink(id, `${nameOf(run)} seed ${run.seed}`), make("span", ` ${word}${text ? `: ${text}` : ""}`)]);
  }
  const made = lines.map(parts => { const line = make("p"); line.append(...parts); return line; });
  byId("progress").hidden = !made.length;
  const key = byId("progress").contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  byId("progress").replaceChildren(...made);
  if (key) [...byId("progress").querySelectorAll("a")].find(link => link.dataset.key === key)?.focus();
}

// ---- verdicts of a sweep

function showVerdictTable(found) {
  const titles = shortKeys(found.swept);
  const columns = found.columns.map((column, i) => ({ ...column, i, isText: column.is_text, title: titles.get(column.key) || column.title, full: titles.has(column.key) ? column.key : "" }));
  let rows = found.rows.map((cells, i) => ({ cells, variant: found.variants[i] }));
  rows = rows.filter(({ cells, variant }) => {
    const listed = [...cells, variant.id, ...Object.entries(variant.values).map(([key, value]) => `${key}=${value}`), ...variant.runs.flatMap(id => overview.runs[id]?.tags || [])];
    const text = listed.join(" ").toLowerCase();
    return wordsOf().every(word => text.includes(word));
  });
  const by = columns.find(column => column.key === choice.verdictSort);
  if (by) rows.sort((a, b) => compared(asNumber(a.cells[by.i]), asNumber(b.cells[by.i])) * (choice.verdictDown ? -1 : 1));
  const head = make("tr");
  head.append(...columns.map(column => headCell(column, ["verdictSort", "verdictDown"], () => showVerdictTable(found))));
  fill(byId("verdict-table"), head, rows.map(row => verdictRow(row, columns, found)));
  const note = byId("reference");
  note.hidden = saved || !found.reference_id;
  note.textContent = "The round buttons choose the variant that all others are compared with. ";
  if (choice.reference) note.append(backToOwn());
}

function verdictRow({ cells, variant }, columns, found) {
  const row = make("tr");
  const made = columns.map(({ key, isText, i }) => {
    if (key === "verdict") return verdictCell(cells[i]);
    const text = key === "state" ? variantState(variant) || cells[i] : cells[i];
    return cell("td", text, textStyle(isText, text));
  });
  row.append(...made);
  const first = make("span", "", "lead"), linked = variant.runs.find(id => id in overview.runs);
  if (found.reference_id && !saved && variant.runs.length) first.append(referenceButton(variant, found));
  first.append(swatch(variant.id), linked ? runLink(linked, made[0].textContent || variant.name) : made[0].textContent);
  made[0].replaceChildren(first);
  return row;
}

function referenceButton(variant, found) {
  const made = make("input");
  made.type = "radio";
  made.name = "reference";
  made.checked = variant.id === found.reference_id;
  made.title = "compare all others with this variant";
  made.setAttribute("aria-label", `compare with ${variant.name}`);
  made.dataset.key = `reference ${variant.id}`;
  made.addEventListener("change", () => chooseReference(variant.id));
  return made;
}

function backToOwn() {
  const made = make("button", "Back to the sweep's own reference");
  made.type = "button";
  made.addEventListener("click", () => chooseReference(""));
  return made;
}

function verdictCell(text) {
  const [kind, ...reason] = text.split(": "), made = cell("td", "", reason.length ? "text verdict long" : "text verdict");
  made.append(make("strong", kind, kind === "better" || kind === "worse" ? kind : ""));
  if (reason.length) made.append(make("small", reason.join(": ")));
  return made;
}

/** Return the states of a variant's runs if some have not ended, with how far they are; else nothing. */
function variantState(variant) {
  const runs = variant.runs.map(id => overview.runs[id]).filter(Boolean), open = runs.filter(isOpen);
  if (!open.length && !variant.waiting) return "";
  const shares = open.filter(run => hasValue(run.share)).map(run => `${Math.floor(100 * run.share)} %`);
  const parts = [countedStates(runs) + (shares.length ? ` (${shares.join(", ")})` : ""), variant.waiting ? `${variant.waiting} waiting` : ""];
  return parts.filter(Boolean).join(", ");
}

/** Show the public records on the same text, with the best variant here among them. */
function showField(found) {
  const { records, about } = found.field || { records: [], about: "" }, best = found.variants.find(v => v.mean !== null);
  const place = byId("field"), summary = place.querySelector("summary");
  place.hidden = !best;
  if (!best) return;
  const ahead = records.filter(record => record.bpb < best.mean).length, head = make("tr");
  summary.textContent = records.length ? `Public field: the best variant here, ${best.mean.toFixed(4)}, would stand ${ahead + 1} of ${records.length + 1}` : "Public field: not comparable";
  place.querySelector("p").textContent = about;
  place.querySelector(".scroll").hidden = !records.length;
  head.append(...["place", "bpb", "record", "from"].map((title, i) => cell("th", title, i > 1 ? "text" : "")));
  const lines = [...records.slice(0, ahead), { name: best.name, bpb: best.mean, source: "here" }, ...records.slice(ahead)];
  fill(place.querySelector("table"), head, lines.map((record, i) => {
    const row = make("tr");
    row.setAttribute("aria-selected", i === ahead);
    row.append(cell("td", String(i + 1)), cell("td", record.bpb.toFixed(4)), cell("td", record.name, "text"), cell("td", record.source, "text"));
    return row;
  }));
}

// ---- runs side by side

/** Return at most eight selected runs, or variants where more runs are selected, as columns of a comparison. */
function sides() {
  const ids = chosenRuns(), variants = [...new Set(ids.map(id => overview.runs[id].variant))];
  if (ids.length <= MOST_SIDES) return ids.map(id => [id, [overview.runs[id]], `${nameOf(overview.runs[id])} seed ${overview.runs[id].seed}`]);
  const of = variant => ids.filter(id => overview.runs[id].variant === variant);
  return variants.slice(0, MOST_SIDES).map(variant => [of(variant)[0], of(variant).map(id => overview.runs[id]), `${nameOf(overview.runs[of(variant)[0]])}, mean of ${counted(of(variant).length, "run")}`]);
}

function showSides() {
  const found = sides();
  byId("side-section").hidden = Boolean(choice.page) || found.length < 2;
  byId("side-title").textContent = `Side by side (${found.length})`;
  if (!byId("side").open || found.length < 2) return;
  const settings = ([, [run]]) => overview.settings[run.variant] || {}, head = make("tr");
  head.append(cell("th", "", "text"), ...found.map(([id, [run], name]) => { const made = cell("th", "", "text"); made.append(swatch(run.variant), runLink(id, name)); return made; }));
  const mean = (runs, key) => { const known = runs.map(run => run[key]).filter(hasValue); return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null; };
  const lines = [["state", found.map(([, runs]) => runs.length > 1 ? countedStates(runs) : stateOf(runs[0]))]];
  const keys = [...new Set(found.flatMap(side => Object.keys(settings(side))))];
  lines.push(...keys.map(key => [key, found.map(side => settings(side)[key] ?? "–")]).filter(([, values]) => new Set(values).size > 1));
  for (const [key, title, digits] of NUMBERS) {
    const values = found.map(([, runs]) => mean(runs, key));
    if (values.some(hasValue)) lines.push([title, values.map(value => hasValue(value) ? shownNumber(value, digits) : "–"), key.endsWith("bpb") ? values : null]);
  }
  for (const key of ["machine", "note", "tags"]) {
    const values = found.map(([, runs]) => [...new Set(runs.flatMap(run => run[key]).filter(hasValue))].join(", "));
    if (values.some(Boolean)) lines.push([key, values]);
  }
  fill(byId("side-table"), head, lines.map(([title, values, scores]) => {
    const row = make("tr"), best = scores ? Math.min(...scores.filter(hasValue)) : null;
    row.append(cell("th", title, "text"), ...values.map((text, i) => cell("td", String(text), `${textStyle(true, String(text))}${scores && scores[i] === best ? " better" : ""}`)));
    row.firstChild.scope = "row";
    return row;
  }));
}

// ---- table of runs

function runRows() {
  const sweep = currentSweep(), words = wordsOf();
  const ids = sweep ? sweep.runs.filter(id => id in overview.runs) : Object.keys(overview.runs);
  const waiting = jobs.runs.filter(job => !ids.some(id => overview.runs[id].variant === job.variant && overview.runs[id].seed === job.seed));
  // A job that has not started has no folder, and its row nothing to show but what it waits for.
  const listed = [...ids.map(id => [id, overview.runs[id]]), ...waiting.map(job => [`${job.name} seed ${job.seed}`, { ...job, isJob: true, reason: job.detail }])];
  const rows = listed.map(([id, run]) => ({ id, run, settings: overview.settings[run.variant] || {} }));
  const longest = choice.noShort ? rows.reduce((most, { run }) => Math.max(most, run.steps || 0), 0) : 0;
  return rows.filter(row => (isOpen(row.run) || row.run.isJob || (row.run.steps || 0) >= SHORT * longest) && words.every(word => searched(row).includes(word)));
}

function searched({ id, run, settings }) {
  const listed = Object.entries(settings).map(([key, value]) => `${key}=${value}`), tags = (run.tags || []).map(tag => `tag=${tag}`);
  return [id, run.name, ...activity(run), `seed=${run.seed}`, run.note || "", ...tags, ...listed].join(" ").toLowerCase();
}

function settingKeys(rows) {
  const values = {};
  for (const { settings } of rows) for (const [key, value] of Object.entries(settings)) (values[key] ||= new Set()).add(value);
  const variants = new Set(rows.map(row => row.run.variant)).size;
  const present = key => new Set(rows.filter(row => key in row.settings).map(row => row.run.variant)).size;
  const differ = Object.keys(values).filter(key => values[key].size > 1 || (present(key) < variants && !key.startsWith("tech.")));
  return differ.slice(0, MOST_SETTINGS);
}

function runColumns(rows) {
  const keys = settingKeys(rows), titles = shortKeys(keys);
  const [score, ...numbers] = NUMBERS.map(([key, title, digits]) => ({ key, title, value: row => row.run[key], shown: value => shownNumber(value, digits) }));
  const text = (key, value) => ({ key, title: key, isText: true, value });
  const columns = [
    text("run", row => row.id), text("state", row => stateOf(row.run)), score,
    ...keys.map(key => ({ key, title: titles.get(key), full: key, value: row => asNumber(row.settings[key]), shown: String })),
    text("tags", row => (row.run.tags || []).join(", ")), text("note", row => row.run.note), ...numbers, text("machine", row => row.run.machine),
  ];
  return columns.filter(column => rows.some(row => hasValue(column.value(row))));
}

/** Return [group, its rows] in the order in which groups first occur; a run with several tags is in several groups. */
function grouped(rows) {
  if (!choice.group) return [["", rows]];
  const of = ({ run, settings }) => choice.group === "tags" ? (run.tags?.length ? run.tags : ["no tag"]) : [settings[choice.group] ?? "–"];
  const groups = new Map();
  for (const row of rows) for (const name of of(row)) groups.has(name) ? groups.get(name).push(row) : groups.set(name, [row]);
  return [...groups].sort((a, b) => compared(asNumber(a[0]), asNumber(b[0])));
}

function showRuns() {
  const rows = runRows(), columns = runColumns(rows), all = Object.keys(overview.runs).length;
  const by = columns.find(column => column.key === choice.sort);
  if (by) rows.sort((a, b) => compared(by.value(a), by.value(b)) * (choice.down ? -1 : 1));
  const shown = showsAllRows ? rows : grouped(rows).flatMap(([, members]) => members).slice(0, FIRST_ROWS), isShown = new Set(shown), head = make("tr");
  byId("all-rows").hidden = shown.length >= rows.length;
  byId("all-rows").textContent = `Show all ${rows.length} rows`;
  byId("runs-title").textContent = `Runs (${rows.length}${rows.length !== all ? ` of ${all}` : ""})`;
  showGroups(rows);
  head.append(cell("th", "show", "mark"), ...columns.map(column => headCell(column, ["sort", "down"], showRuns)));
  fill(byId("run-table"), head, grouped(rows).flatMap(([name, members]) => {
    const listed = members.filter(row => isShown.has(row));
    return [...(choice.group ? [groupRow(name, members, columns)] : []), ...listed.map(row => runRow(row, columns))];
  }));
}

function showGroups(rows) {
  const keys = settingKeys(rows), hasTags = rows.some(row => row.run.tags?.length);
  const options = [new Option("nothing", ""), ...(hasTags || choice.group === "tags" ? [new Option("tags", "tags")] : []), ...keys.map(key => new Option(key, key))];
  byId("group").replaceChildren(...options);
  if (![...byId("group").options].some(option => option.value === choice.group)) choice.group = "";
  byId("group").value = choice.group;
}

function groupRow(name, members, columns) {
  const scores = members.filter(row => row.run.state === "ok").map(row => row.run.val_bpb).filter(hasValue), row = make("tr", undefined, "group");
  const mean = scores.reduce((a, b) => a + b, 0) / scores.length;
  const made = cell("th", `${choice.group} ${name}: ${counted(members.length, "run")}${scores.length ? `, best ${Math.min(...scores).toFixed(4)}, mean ${mean.toFixed(4)} bpb` : ""}`, "text");
  made.colSpan = columns.length + 1;
  made.scope = "colgroup";
  row.append(made);
  return row;
}

function runRow(row, columns) {
  const made = make("tr"), box = make("input"), mark = cell("td", "", "mark");
  box.type = "checkbox";
  box.checked = choice.selected.has(row.id);
  box.dataset.run = box.dataset.key = row.id;
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
    const shown = cell("td", text, textStyle(column.isText, text));
    if (column.key === "run" && !row.run.isJob) shown.replaceChildren(runLink(row.id, row.id));
    made.append(shown);
  }
  return made;
}
