"use strict";
// The page of one run: how it ended, its note, settings, artifact, log and files.

let pageOf = "";  // run that the page was built for; its note may hold words that are not saved yet

function openPage(id) {
  choice.page = id;
  history.pushState(null, "", `#${addressOf({})}`);
  showPage().then(() => { scrollTo(0, 0); byId("page-title")?.focus(); });
  changed();
}

/** Show the page of the chosen run in place of verdicts and tables, or these. */
async function showPage() {
  const run = overview.runs[choice.page], isShown = Boolean(run);
  if (!isShown) choice.page = "";
  byId("page").hidden = !isShown;
  byId("runs").hidden = isShown;
  showSides();
  if (isShown) byId("scores-section").hidden = true;
  byId("verdicts").hidden = isShown || !currentSweep();
  if (!isShown) { pageOf = ""; byId("page").replaceChildren(); redraw(); return; }
  const id = choice.page;
  let values = null;
  try {
    const found = (await ask(`api/run?run=${encodeURIComponent(id)}`)).values;
    values = saved ? found?.[id] : found;
  } catch (error) {
    values = { made: {}, settings: {}, result: {}, warnings: [error.message], log: "", files: [], folder: "" };
  }
  if (id !== choice.page) return;
  if (pageOf !== id) buildPage(id, run);
  byId("page-state").textContent = stateOf(run);
  byId("page-body").replaceChildren(...pageParts(id, run, values));
}

/** Make what stays while the run goes on: heading, links to other seeds, note, artifact. */
function buildPage(id, run) {
  pageOf = id;
  const title = make("h2", id), back = make("button", "← back to all runs"), seeds = make("p", "Runs of this variant: "), state = make("p"), body = make("div");
  title.id = "page-title";
  title.tabIndex = -1;
  title.prepend(swatch(run.variant));
  back.type = "button";
  back.addEventListener("click", () => { choice.page = ""; history.pushState(null, "", `#${addressOf({})}`); showPage(); changed(); });
  for (const other of Object.keys(overview.runs).filter(other => overview.runs[other].variant === run.variant)) seeds.append(other === id ? make("strong", `seed ${run.seed}`) : runLink(other, `seed ${overview.runs[other].seed}`), " ");
  state.id = "page-state";
  body.id = "page-body";
  byId("page").replaceChildren(back, title, state, seeds, noteForm(id, run), body, ...(saved || !hasValue(run.total_bytes) ? [] : [artifactPart(id)]));
}

function noteForm(id, run) {
  const form = make("form"), label = make("label", "Note "), text = make("textarea"), save = make("button", "Save note"), told = make("span");
  let seen = run.note_id;  // note that this form was filled with: another window may save one meanwhile
  text.value = run.note || "";
  text.rows = 2;
  text.maxLength = 5000;
  text.readOnly = Boolean(saved);
  told.setAttribute("role", "status");
  label.append(text);
  save.type = "submit";
  form.className = "note";
  form.append(label, ...(saved ? [] : [save, told]));
  form.addEventListener("submit", async event => {
    event.preventDefault();
    try {
      const response = await fetch(`api/note?run=${encodeURIComponent(id)}&seen=${seen}`, { method: "POST", body: text.value });
      const found = await response.json();
      if (!response.ok) throw new Error(found.error);
      overview.runs[id] = found;
      seen = found.note_id;
      told.textContent = "Saved in note.txt of the run's folder.";
      showRuns();
    } catch (error) {
      told.textContent = `Not saved: ${error.message}`;
      await refresh();
      seen = overview.runs[id].note_id;
    }
  });
  text.addEventListener("input", () => { told.textContent = "Not saved yet."; });
  return form;
}

function artifactPart(id) {
  const made = make("details"), place = make("div"), title = make("summary", "Bytes of the artifact by tensor class");
  place.className = "scroll";
  made.append(title, place);
  made.addEventListener("toggle", async () => {
    if (!made.open || place.childElementCount) return;
    place.textContent = "The artifact is read …";
    try {
      const { values } = await ask(`api/artifact?run=${encodeURIComponent(id)}`);
      const rows = values.classes.map(c => [c.tensor_class, c.format, shownNumber(c.params, 0), shownNumber(c.coded_bytes, 0), `${(8 * c.coded_bytes / c.params).toFixed(2)}`]);
      place.replaceChildren(make("p", values.about), pairTable(["class", "formats", "parameters", "bytes in the file", "bits a parameter"], rows, 2));
    } catch (error) {
      place.textContent = error.message;
    }
  });
  return made;
}

/** Return a table with these headings; the first `texts` columns are text and the others numbers. */
function pairTable(titles, rows, texts = titles.length) {
  const table = make("table"), head = make("tr");
  head.append(...titles.map((title, i) => cell("th", title, i < texts ? "text" : "")));
  fill(table, head, rows.map(cells => {
    const row = make("tr");
    row.append(...cells.map((text, i) => text instanceof Node ? text : cell("td", String(text), i < texts ? textStyle(true, String(text)) : "")));
    return row;
  }));
  return table;
}

/** Return a figure of a result: whole numbers in full, others with three digits, because a gap may be 0.0003. */
const shownFigure = value => typeof value !== "number" ? value : value.toLocaleString("en", Number.isInteger(value) ? {} : { maximumSignificantDigits: 3 });

function pageParts(id, run, values) {
  if (!values) return [make("p", "This file has no more on this run: it holds the pages of the first runs alone.")];
  const parts = [], part = (title, ...content) => { if (content.length) parts.push(make("h3", title), ...content); };
  const figures = NUMBERS.filter(([key]) => hasValue(run[key])).map(([key, title, digits]) => [title, shownNumber(run[key], digits)]);
  for (const [key, title] of [["artifact_bytes", "artifact bytes"], ["code_bytes", "code bytes"], ["cap_bytes", "cap in bytes"]]) if (hasValue(run[key])) figures.push([title, shownNumber(run[key], 0)]);
  for (const key of ["model_params", "tokens_seen", "quant_gap_bpb", "codec", "peak_memory_mib", "cpu_seconds", "calibration_seconds", "quantize_seconds"]) if (values.result[key]) figures.push([key.replaceAll("_", " "), shownFigure(values.result[key])]);
  const started = values.made.started_at ? new Date(1000 * values.made.started_at).toLocaleString("sv") : "";
  const made = [["command", values.made.command], ["commit", values.made.commit], ["machine", run.machine], ["host", values.made.host], ["started", started], ["Python, torch", [values.made.python, values.made.torch].filter(Boolean).join(", ")], ["tags", (run.tags || []).join(", ")], ["folder", values.folder]];
  if (values.warnings.length) { const list = make("ul"); list.append(...values.warnings.map(text => make("li", text))); part("Warnings", list); }
  const differing = overview.settings[run.variant] || {}, base = shownSweep?.reference_id !== run.variant && overview.settings[shownSweep?.reference_id];
  const columns = make("div", undefined, "columns");
  const boxed = (title, table) => { const box = make("div"); box.append(make("h3", title), table); columns.append(box); };
  if (figures.length) boxed("Figures", pairTable(["figure", "value"], figures, 1));
  if (Object.keys(differing).length) boxed("Settings that differ between runs", pairTable(["setting", "value", ...(base ? ["reference"] : [])], Object.entries(differing).map(([key, value]) => [key, value, ...(base ? [base[key] ?? "–"] : [])])));
  boxed("Made with", pairTable(["what", "value"], made.filter(([, value]) => hasValue(value))));
  parts.push(columns);
  if (values.files.length) boxed("Files", pairTable(["file", "bytes"], values.files.map(([name, size, isSent]) => [fileCell(id, name, isSent), shownNumber(size, 0)]), 1));
  if (values.log) { const log = make("pre", values.log, "log"); log.tabIndex = 0; part("End of the log", log); }
  const all = make("details");
  all.append(make("summary", `All ${Object.keys(values.settings).length} settings`), pairTable(["setting", "value"], Object.entries(values.settings)));
  all.open = byId("page-body").querySelector("details")?.open || false;
  parts.push(all);
  return parts;
}

function fileCell(id, name, isSent) {
  const made = cell("td", isSent ? "" : name, "text"), link = make("a", name);
  link.href = `file?run=${encodeURIComponent(id)}&name=${encodeURIComponent(name)}`;
  link.target = "_blank";
  if (isSent) made.append(link);
  return made;
}
