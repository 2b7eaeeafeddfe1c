// Page of the cardinality: names, labels and label values by number of series, and the rule that drops each of them.

import { ask, QUERY_DEADLINE_MS } from "./api.js";
import { literal } from "./dashboard_values.js";
import { byId, copyable, el, fill, later } from "./dom.js";
import { compact, plural, quote } from "./format.js";
import { buildFrame } from "./frame.js";
import { fetchText } from "./language.js";
import { AddressState, cell, explore, listenKeys, startFeed, stateLink, table } from "./list_page.js";

/** Limit of a regular expression, in rules and in queries, in characters. */
const REGEX_MOST = 1000;
/** Hourly buckets, from the one a day before the newest on. */
const DAY = "25h";

/** @typedef {{name: string, value: number}} Entry */
/** @typedef {{headStats: {numSeries: number, numLabelPairs: number}, seriesCountByMetricName: Entry[], labelValueCountByLabelName: Entry[], memoryInBytesByLabelName: Entry[], seriesCountByLabelValuePair: Entry[]}} Counts */
/** @typedef {{then: number, now: number}} Growth */

/** @type {Record<string, {title: string, column: string, entries: (counts: Counts) => Entry[]}>} */
const VIEWS = {
  names: { title: "Names", column: "Series", entries: (counts) => counts.seriesCountByMetricName },
  labels: { title: "Labels", column: "Values", entries: (counts) => counts.labelValueCountByLabelName.filter((one) => one.name !== "__name__") },
  values: { title: "Label values", column: "Series", entries: (counts) => counts.seriesCountByLabelValuePair },
};

const state = new AddressState({ view: "names", top: "20", filter: "", of: "" });
if (!(state.now.view in VIEWS)) state.now.view = "names";
if (!/^\d{1,3}$/.test(state.now.top)) state.now.top = "20";
/** @type {Counts|null} */ let counts = null;
/** @type {Map<string, Growth>} */ let growth = new Map();

const { feed } = startFeed({
  load: async (signal) => {
    const { data } = await ask("v1/status/tsdb", { limit: Number(state.now.top) }, signal, QUERY_DEADLINE_MS);
    return data;
  },
  show: (/** @type {Counts} */ data) => { counts = data; draw(); void loadGrowth(data); },
  refresh: "off",
});

/** Counts the reporting series of the listed names now and a day ago, by as few queries as the limit of an expression allows. @param {Counts} data */
async function loadGrowth(data) {
  const found = /** @type {typeof growth} */ (new Map());
  try {
    for (const names of alternatives(data.seriesCountByMetricName.map((one) => literal(one.name)))) {
      for (const [name, one] of await growthOf(`{__name__=~${quote(names)}}`, ["__name__"])) found.set(name, one);
      if (counts !== data) return; // a newer count came meanwhile
    }
    growth = found;
    draw();
  } catch (error) {
    byId("growth").textContent = `The growth of a day is not known: ${error instanceof Error ? error.message : error}`;
  }
}

/** Joins expressions to alternatives of at most REGEX_MOST characters. @param {string[]} expressions */
function alternatives(expressions) {
  const found = /** @type {string[]} */ ([]);
  for (const one of expressions.filter((text) => text.length <= REGEX_MOST)) {
    const joined = `${found.at(-1) ?? ""}|${one}`;
    if (found.length && joined.length <= REGEX_MOST) found[found.length - 1] = joined;
    else found.push(one);
  }
  return found;
}

/** @param {string} selector @param {string[]} by @returns {Promise<Map<string, Growth>>} empty if memory holds no sample of a day ago */
async function growthOf(selector, by) {
  const q = `${fetchText(selector)}.count(by=${JSON.stringify(by)}).range("${DAY}")`;
  const { series } = await ask("query", { q }, undefined, QUERY_DEADLINE_MS);
  const found = new Map(series.map((/** @type {import("./api.js").Series} */ one) => [one.name, { then: Number(one.values[0]), now: Number(one.values.at(-1)) }]));
  return [...found.values()].some((one) => one.then) ? found : new Map();
}

function draw() {
  if (!counts) return;
  const { view, filter } = state.now, { title, column, entries } = VIEWS[view], total = counts.headStats.numSeries;
  byId("total").textContent = `${plural(total, "series", "series")}, ${plural(counts.headStats.numLabelPairs, "pair")} of label and value`;
  byId("growth").textContent = view !== "names" || growth.size ? "" : "The growth appears once memory holds a day.";
  const act = () => { draw(); };
  fill(byId("views"), Object.entries(VIEWS).map(([key, one]) => stateLink(state, { view: key, of: "" }, one.title, act, { "aria-current": key === view ? "true" : null })));
  const fits = entries(counts).filter((one) => one.name.toLowerCase().includes(filter.toLowerCase()));
  const number = (/** @type {string} */ text) => ({ text, number: true });
  const columns = [title, number(column), ...(view === "labels" ? [number("Bytes")] : [number("Share")]), ...(view === "names" ? [number("In a day")] : [])];
  fill(byId("list"), fits.length ? [table(title, columns, fits.map((one) => line(one, total)))] : [el("p", { class: "faint", text: filter ? "No entry has this text." : "Memory holds no series." })]);
  drawDetail();
}

/** @param {Entry} one @param {number} total */
function line(one, total) {
  const { view, of } = state.now, then = growth.get(one.name);
  const head = el("th", { scope: "row", class: "text" }, stateLink(state, { of: one.name }, one.name, draw, { class: "mono" }));
  const bytes = counts?.memoryInBytesByLabelName.find((label) => label.name === one.name)?.value;
  const more = view === "labels" ? (bytes === undefined ? "–" : compact(bytes, 3)) : share(one.value, total);
  return el("tr", { class: of === one.name ? "chosen" : null }, head, cell(one.value.toLocaleString("en-GB"), "number"), cell(more, "number"), view === "names" ? cell(then ? signed(then) : "–", "number") : null);
}

/** @param {number} part @param {number} total */
const share = (part, total) => (total ? `${((100 * part) / total).toFixed(1)} %` : "–");

/** @param {Growth} one */
const signed = ({ then, now }) => `${now >= then ? "+" : "−"}${Math.abs(now - then).toLocaleString("en-GB")}`;

let drawn = "";
function drawDetail() {
  const { view, of } = state.now, key = JSON.stringify([view, of]);
  if (key === drawn) return;
  drawn = key;
  if (!of) return fill(byId("detail-body"), [el("p", { class: "faint", text: "Choose an entry: here stand its growth in a day, and the rule that drops it." })]);
  const found = /** @type {Record<string, () => Dropped>} */ ({ names: () => ofName(of), labels: () => ofLabel(of), values: () => ofPair(of) })[view]();
  const facts = el("dl", { class: "facts" }, el("dt", { text: "Series that reported" }), el("dd", { id: "grown", text: "…" }));
  fill(byId("detail-body"), [el("h3", { class: "mono", text: of }), facts, el("p", {}, ...found.links), el("p", { text: found.text }), ...ruleParts(found.rule)]);
  void growthOf(found.selector, []).then((grown) => told(grown.get("")), () => told(undefined, "not known: the query failed"));
  function told(/** @type {Growth|undefined} */ one, problem = "memory does not hold a day yet, or no series reported then") {
    if (drawn === key) byId("grown").textContent = one ? `${one.now.toLocaleString("en-GB")} in the last hour, ${one.then.toLocaleString("en-GB")} a day before (${signed(one)})` : problem;
  }
}

/** @typedef {{selector: string, text: string, rule: Record<string, string|string[]>, links: HTMLElement[]}} Dropped */

/** @param {string} name @returns {Dropped} */
function ofName(name) {
  return {
    selector: `{__name__=${quote(name)}}`,
    text: "The rule drops the variable: its series are neither stored nor announced. If one of its labels has too many values, drop series by these values instead.",
    rule: { name: `drop ${name}`, source_labels: ["__name__"], regex: literal(name), action: "drop" },
    links: [el("a", { href: `variables?${new URLSearchParams({ name })}`, text: "Its labels and their number of values" })],
  };
}

/** @param {string} label @returns {Dropped} */
function ofLabel(label) {
  const selector = `{${label}!=""}`;
  return {
    selector,
    text: "The rule removes the label from all series. Series that differ in this label only become equal: the agent takes the first and refuses the others (“same series twice”). Then drop the variables or values that have most series.",
    rule: { name: `remove ${label}`, regex: literal(label), action: "labeldrop" },
    links: [el("a", { href: explore(`${fetchText(selector)}.count(by=["__name__"])`), text: "Variables that have this label" })],
  };
}

/** @param {string} pair label=value @returns {Dropped} */
function ofPair(pair) {
  const at = pair.indexOf("="), label = pair.slice(0, at), value = pair.slice(at + 1);
  const selector = `{${label}=${quote(value)}}`;
  return {
    selector,
    text: "The rule drops every series with this value, of all variables.",
    rule: { name: `drop ${pair}`, source_labels: [label], regex: literal(value), action: "drop" },
    links: [el("a", { href: explore(`${fetchText(selector)}.count(by=["__name__"])`), text: "Variables that have this value" })],
  };
}

/** @param {Record<string, string|string[]>} rule */
function ruleParts(rule) {
  if (rule.regex.length > REGEX_MOST) return [el("p", { class: "problem", text: `The text is too long for a rule: an expression has at most ${REGEX_MOST} characters.` })];
  const where = "Put the line under “relabel:” in the file of sources of the agents (artimon agent --sources). It takes effect at the next start of each agent; artimon.rule.series{rule} then counts what it drops. Stored samples stay.";
  return [...copyable(`- {${Object.entries(rule).map(([key, value]) => `${key}: ${yaml(value)}`).join(", ")}}`, "rule"), el("p", { class: "faint", text: where })];
}

/** Writes a value as YAML of one line: JSON without the characters that YAML does not print. @param {string|string[]} value */
function yaml(value) {
  return JSON.stringify(value).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function wire() {
  const filter = /** @type {HTMLInputElement} */ (byId("filter")), top = /** @type {HTMLSelectElement} */ (byId("top"));
  filter.value = state.now.filter;
  top.value = state.now.top;
  filter.addEventListener("input", later(() => { state.set({ filter: filter.value.trim() }); draw(); }, 150));
  top.addEventListener("change", () => { state.set({ top: top.value }); void feed.restart(); });
  byId("list-form").addEventListener("submit", (event) => event.preventDefault());
  listenKeys({ r: () => void feed.restart() });
}

buildFrame("cardinality");
wire();
drawDetail();
