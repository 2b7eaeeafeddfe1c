// Page of the variables: search by name, help, unit and labels; for one variable what is known of it, and its chart.

import { ask, QUERY_DEADLINE_MS } from "./api.js";
import { Chart } from "./chart.js";
import { unitText } from "./dashboard_values.js";
import { announce, byId, el, fill, later } from "./dom.js";
import { moment, plural, quote } from "./format.js";
import { buildFrame, onTheme } from "./frame.js";
import { fetchText, withRange } from "./language.js";
import { Legend } from "./legend.js";
import { AddressState, cell, explore, listenKeys, startFeed, stateLink, table } from "./list_page.js";
import { DRAWN_MOST, rowsOf } from "./series.js";
import { Table } from "./table.js";
import { OFFERED } from "./time_range.js";

const RANGES = OFFERED.map(([range]) => range);
const LISTED = 50, COUNTED = 1000, SHOWN = 5, CONCURRENT = 4;
const PLAIN_NAME = /^[A-Za-z_][\w.]*$/;
const HOWS = { counter: ["rate"], gauge: ["mean", "min", "max", "each"], histogram: ["0.5", "0.9", "0.99"], text: ["each"] };
const TEXTS = /** @type {Record<string, string>} */ ({ rate: "rate, added up", each: "each series", 0.5: "median", 0.9: "90 % are below", 0.99: "99 % are below" });

/** @typedef {{kind: string, help: string, unit: string}} Described */
/** @typedef {{name: string, values: string[]}} Label */

const state = new AddressState({ filter: "", name: "", how: "", by: "", range: "1h", view: "chart" });
if (!RANGES.includes(state.now.range)) state.now.range = "1h";
/** Shape of the chosen variable: how its chart can be made. */
let shape = /** @type {keyof typeof HOWS} */ ("gauge");
let unit = "";
let loading = new AbortController(), charting = new AbortController();
/** @type {{rows: import("./series.js").Row[], grid: import("./api.js").Matrix["grid"], common: string}|null} */ let answer = null;
const choice = { only: "", hidden: /** @type {Set<string>} */ (new Set()) };

const chart = new Chart(byId("chart"), () => undefined, { format: (value) => unitText(value, unit) });
const legend = new Legend(byId("legend"), {
  pick: (key) => { choice.only = choice.only === key ? "" : key; drawAnswer(); },
  hide: (key) => { if (!choice.hidden.delete(key)) choice.hidden.add(key); drawAnswer(); },
  point: (key) => chart.highlight(key),
});
const values = new Table(byId("table"), byId("table-tools"));
const { feed } = startFeed({ load: (signal) => ask("v1/metadata", { search: state.now.filter, limit: LISTED }, signal), show: showList, refresh: "off" });

/** @param {{data: Record<string, {type: string, help: string, unit: string}[]>, warnings?: string[]}} found */
function showList({ data, warnings }) {
  const names = Object.keys(data), more = names.length >= LISTED && warnings?.length;
  byId("count").textContent = more ? `the first ${plural(names.length, "variable")}` : plural(names.length, "variable");
  if (!names.length) return fill(byId("list"), [el("p", { class: "faint", text: state.now.filter ? "No variable fits every word." : "No variable has arrived yet." })]);
  fill(byId("list"), [el("ul", {}, ...names.map((name) => {
    const { type, help, unit: measured } = data[name][0];
    return el("li", { class: "variable" }, stateLink(state, { name, how: "", by: "" }, name, showVariable, { class: "mono", "data-key": `name ${name}` }), el("span", { class: "faint", text: [type === "unknown" ? "" : type, measured, help].filter(Boolean).join(" · ") }));
  }))]);
  markChosen();
}

function markChosen() {
  for (const one of byId("list").querySelectorAll("a")) {
    if (one.textContent === state.now.name) one.setAttribute("aria-current", "true");
    else one.removeAttribute("aria-current");
  }
}

const matcher = (/** @type {string} */ name) => `{__name__=${quote(name)}}`;

/** Returns the query of all series of a variable, or of those with a value. @param {string} name @param {string} [label] @param {string} [value] */
function fetched(name, label, value = "") {
  const pair = label ? `${label}=${quote(value)}` : "";
  return fetchText(PLAIN_NAME.test(name) ? `${name}${pair ? `{${pair}}` : ""}` : `{__name__=${quote(name)}${pair ? `,${pair}` : ""}}`);
}

/** Loads and shows the variable of the address. */
async function showVariable() {
  loading.abort();
  const { signal } = (loading = new AbortController());
  const { name } = state.now;
  markChosen();
  charting.abort();
  answer = null;
  chart.clear();
  byId("variable").hidden = !name;
  byId("none").hidden = Boolean(name);
  if (!name) return;
  byId("name").textContent = name;
  document.title = `${name} · Artimon`;
  for (const id of ["facts", "labels"]) fill(byId(id), []);
  byId("variable-problem").textContent = "";
  try {
    const [{ data }, { series }, labels] = await Promise.all([ask("v1/metadata", { metric: name }, signal), ask("find", { selector: matcher(name), limit: 1 }, signal), readLabels(name, signal)]);
    if (!series.length) throw new Error("Memory holds no series of this variable.");
    const { type, help, unit: measured } = data[name]?.[0] ?? { type: "unknown", help: "", unit: "" };
    const bounds = labels.some((one) => one.name === "le") && /[._]bucket$/.test(name);
    shape = series[0].type === "STRING" ? "text" : bounds ? "histogram" : type === "counter" ? "counter" : "gauge";
    showChoices(labels); // before the links, whose queries follow from them
    showFacts({ kind: `${bounds ? "histogram" : type === "unknown" ? "not told" : type}, ${series[0].type.toLowerCase()}`, help, unit: measured }, labels);
    unit = shape === "counter" ? `${measured}/s` : measured;
    await Promise.all([loadChart(), loadReach(name, signal)]);
  } catch (error) {
    if (!signal.aborted) byId("variable-problem").textContent = error instanceof Error ? error.message : String(error);
  }
}

/** Reads the labels of a variable with their values, the first COUNTED of each. @param {string} name @param {AbortSignal} signal @returns {Promise<Label[]>} */
async function readLabels(name, signal) {
  const wanted = { "match[]": matcher(name) };
  const { data } = await ask("v1/labels", wanted, signal);
  const names = data.filter((/** @type {string} */ one) => one !== "__name__"), found = /** @type {Label[]} */ ([]);
  const work = async () => {
    for (let one = names.shift(); one !== undefined; one = names.shift()) {
      found.push({ name: one, values: (await ask(`v1/label/${encodeURIComponent(one)}/values`, { ...wanted, limit: COUNTED }, signal)).data });
    }
  };
  await Promise.all(Array.from({ length: CONCURRENT }, work));
  return found.sort((a, b) => b.values.length - a.values.length || (a.name < b.name ? -1 : 1));
}

/** @param {Label} one */
const countText = (one) => `${one.values.length.toLocaleString("en-GB")}${one.values.length >= COUNTED ? " or more" : ""}`;

/** @param {Described} told @param {Label[]} labels */
function showFacts({ kind, help, unit: measured }, labels) {
  const fact = (/** @type {string} */ term, /** @type {(Node|string)[]} */ ...content) => [el("dt", { text: term }), el("dd", {}, ...content)];
  const valuesOf = (/** @type {string} */ name) => labels.find((one) => one.name === name);
  const contexts = valuesOf("context"), hosts = valuesOf("host");
  const who = [contexts ? contexts.values.slice(0, SHOWN).join(", ") + (contexts.values.length > SHOWN ? ` and ${contexts.values.length - SHOWN} more contexts` : "") : "", hosts ? `on ${countText(hosts)} ${hosts.values.length === 1 ? "host" : "hosts"}` : ""];
  fill(byId("facts"), [
    ...fact("Kind, type", kind), ...fact("Unit", measured || "not told"), ...fact("Help", help || "not told"),
    ...fact("Reported by", who.filter(Boolean).join(" ") || "sources without context and host"),
    ...fact("Series", el("span", { id: "reporting", text: "…" })), ...fact("Since", el("span", { id: "since", text: "…" })),
  ]);
  const line = (/** @type {Label} */ one) => el("tr", {}, el("th", { scope: "row", class: "mono", text: one.name }), cell(countText(one), "number"), el("td", { class: "text" }, ...examples(one)));
  fill(byId("labels"), labels.length ? [table("Labels", ["Label", { text: "Values", number: true }, "First values"], labels.map(line))] : [el("p", { class: "faint", text: "It has no labels." })]);
}

/** Creates links to the series of the first values. @param {Label} label @returns {Node[]} */
function examples({ name, values: all }) {
  return all.slice(0, SHOWN).flatMap((value, i) => [document.createTextNode(i ? ", " : ""), el("a", { class: "mono", href: explore(queryOf(fetched(state.now.name, name, value), ""), { range: state.now.range }), text: value })]);
}

/** Fills the choices of the chart. @param {Label[]} labels */
function showChoices(labels) {
  const hows = HOWS[shape], names = labels.map((one) => one.name).filter((name) => shape !== "histogram" || name !== "le");
  const how = hows.includes(state.now.how) ? state.now.how : hows[hows.includes("0.9") ? 1 : 0];
  if (state.now.by && !names.includes(state.now.by)) state.now.by = "";
  state.now.how = how;
  const options = (/** @type {string} */ id, /** @type {[string, string][]} */ all, /** @type {string} */ now) => fill(byId(id), all.map(([value, text]) => el("option", { value, text, selected: value === now })));
  options("how", hows.map((one) => [one, TEXTS[one] ?? one]), how);
  options("by", [["", "all series together"], ...names.map((name) => /** @type {[string, string]} */ ([name, `by ${name}`]))], state.now.by);
  /** @type {HTMLSelectElement} */ (byId("by")).disabled = how === "each";
}

/** Returns the query of the chart. @param {string} series @param {string} by */
function queryOf(series, by) {
  const { how } = state.now, of = `by=${JSON.stringify(by ? [by] : [])}`;
  if (how === "each") return series;
  if (how === "rate") return `${series}.rate().sum(${of})`;
  if (shape === "histogram") return `${series}.rate().histogram_quantile(${how}, ${of})`;
  return `${series}.${how}(${of})`;
}

/** Asks for the values of the chart and draws them. */
async function loadChart() {
  charting.abort();
  const { signal } = (charting = new AbortController());
  const q = queryOf(fetched(state.now.name), state.now.by);
  byId("open").setAttribute("href", explore(q, { range: state.now.range }));
  byId("query").textContent = q;
  byId("chart-problem").textContent = "";
  try {
    const matrix = await ask("query", { q: withRange(q, state.now.range).q }, signal, QUERY_DEADLINE_MS);
    const { rows, common } = rowsOf(matrix);
    answer = { rows: rows.map((row) => ({ ...row, short: row.short === "{}" ? state.now.name : row.short, format: row.numbers ? (value) => unitText(value, unit) : undefined })), grid: matrix.grid, common };
    choice.only = "";
    choice.hidden.clear();
    values.rewind();
    drawAnswer();
    announce(`Chart of ${state.now.name}: ${plural(rows.length, "line")}`);
  } catch (error) {
    if (signal.aborted) return;
    chart.clear();
    byId("chart-problem").textContent = error instanceof Error ? error.message : String(error);
  }
}

function drawAnswer() {
  if (!answer) return;
  const numeric = answer.rows.filter((row) => row.numbers).slice(0, DRAWN_MOST), asTable = state.now.view === "table" || !numeric.length;
  byId("graph").hidden = asTable;
  byId("table-view").hidden = !asTable;
  byId("view").textContent = asTable ? "Chart" : "Table";
  /** @type {HTMLButtonElement} */ (byId("view")).disabled = !numeric.length;
  if (asTable) return values.draw(answer.rows, answer.grid);
  chart.draw(numeric, answer.grid, (row) => (choice.only ? choice.only === row.key : !choice.hidden.has(row.key)));
  legend.draw(numeric, choice, answer.rows.length > numeric.length ? `${numeric.length} of ${answer.rows.length} series` : answer.common || "Series");
}

/** Tells how many series report, and since when memory has the variable. @param {string} name @param {AbortSignal} signal */
async function loadReach(name, signal) {
  try {
    const { series, grid } = await ask("query", { q: `${fetched(name)}.count(by=[]).range("3d")` }, signal, QUERY_DEADLINE_MS);
    const counts = (series[0]?.values ?? []).map(Number), first = counts.findIndex((/** @type {number} */ one) => one > 0);
    byId("reporting").textContent = `${(counts.at(-1) ?? 0).toLocaleString("en-GB")} reported in the last full hour`;
    byId("since").textContent = first < 0 ? "less than an hour, or its last sample is older than memory" : first === 0 ? `before ${moment(grid.start_ms)}, where memory begins` : moment(grid.start_ms + first * grid.step_ms);
  } catch {
    if (!signal.aborted) for (const id of ["reporting", "since"]) byId(id).textContent = "not known: the query failed";
  }
}

/** Changes the chart only. @param {Partial<typeof state.now>} changes */
function change(changes) {
  state.set(changes);
  /** @type {HTMLSelectElement} */ (byId("by")).disabled = state.now.how === "each";
  void loadChart();
}

function toggleView() {
  state.set({ view: state.now.view === "table" ? "chart" : "table" });
  drawAnswer();
}

function wire() {
  const filter = /** @type {HTMLInputElement} */ (byId("filter"));
  filter.value = state.now.filter;
  filter.addEventListener("input", later(() => { state.set({ filter: filter.value.trim() }); void feed.restart(); }, 250));
  byId("list-form").addEventListener("submit", (event) => event.preventDefault());
  fill(byId("range"), RANGES.map((one) => el("option", { value: one, text: one, selected: one === state.now.range })));
  for (const key of ["how", "by", "range"]) byId(key).addEventListener("change", (event) => change({ [key]: /** @type {HTMLSelectElement} */ (event.target).value }));
  byId("chart-form").addEventListener("submit", (event) => event.preventDefault());
  byId("view").addEventListener("click", toggleView);
  listenKeys({ r: () => { void feed.restart(); void showVariable(); }, t: toggleView });
  onTheme(() => { chart.recolour(); drawAnswer(); });
}

buildFrame("variables");
wire();
void showVariable();
