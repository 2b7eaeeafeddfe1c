// Explanation of a query: its plan as a tree with time and size of each node, and what was read from the stores.

import { el, fill } from "./dom.js";
import { clock, duration, moment, plural } from "./format.js";
import { answerOf, isOrigin } from "./question.js";

const NODES_MOST = 500;
const READS_MOST = 100;
const INDENTED_MOST = 16;
const INDENT_PX = 18;
const ARTIMON_ONLY = "Only queries in the language of Artimon are explained, not PromQL. artimon query --promql … --to-dsl translates one.";

/** @typedef {{name: string, question: import("./question.js").Question, hard: boolean}} Asked `name`: letter of the query, "" for the only one */
/** @typedef {{depth: number, text: string, about: string, ms?: number, own_ms?: number, series?: number, points?: number}} PlanNode without `ms`: computed in the node above */

export class Explain {
  /** @param {HTMLElement} place @param {HTMLElement} tools */
  constructor(place, tools) {
    this.place = place;
    this.tools = tools;
    this.shown = "";
    this.abort = new AbortController();
  }

  /** Explains a query, which runs again for it; the explanation stays while the same query is drawn. @param {Asked} asked */
  draw(asked) {
    const shown = JSON.stringify([asked.name, asked.question.parameters]);
    if (shown !== this.shown) void this._measure(asked, shown);
  }

  /** @param {Asked} asked @param {string} shown */
  async _measure({ name, question, hard }, shown) {
    this.shown = shown;
    this.abort.abort();
    const { signal } = (this.abort = new AbortController());
    const told = el("span", { class: "faint", role: "status", text: question.range ? ARTIMON_ONLY : "measuring…" });
    const again = el("button", { type: "button", class: "plain", "data-key": "again", text: "Measure again", onclick: () => this._measure({ name, question, hard }, shown) });
    fill(this.tools, question.range ? [told] : [told, again]);
    fill(this.place, []);
    if (question.range) return;
    try {
      const found = /** @type {any} */ (await answerOf({ ...question, parameters: { ...question.parameters, explain: 1 } }, signal, hard));
      told.textContent = summary(found, name);
      fill(this.place, [planTable(found.plan), ...(found.origin.fetched.length ? [readTable(found.origin)] : [])]);
    } catch (problem) {
      if (!signal.aborted) told.textContent = /** @type {Error} */ (problem).message;
    }
  }
}

/** @param {any} found an explanation @param {string} name of the query */
function summary({ origin, plan, notes, series, points }, name) {
  const size = `${plural(series, "series", "series")}, ${plural(points, "point")}, ${time(origin.ms)} ms`;
  const more = plan.length > NODES_MOST ? [`${NODES_MOST} of ${plan.length} nodes`] : [];
  const parts = [origin.engine, `level ${duration(origin.step_ms)}: ${origin.why}`, size, `measured ${clock(Date.now())}`, ...more, ...notes.filter(isOrigin)];
  return (name && `${name}: `) + parts.join(" · ");
}

/** @param {PlanNode[]} nodes parents before children */
function planTable(nodes) {
  const most = Math.max(...nodes.map((one) => one.own_ms ?? 0));
  const lines = nodes.slice(0, NODES_MOST).map((one) => {
    const node = el("th", { scope: "row", class: "mono name-cell" }, el("span", { class: "unseen", text: `Depth ${one.depth}: ` }), one.text);
    node.style.paddingLeft = `${8 + INDENT_PX * Math.min(one.depth, INDENTED_MOST)}px`;
    const cells = [time(one.ms), time(one.own_ms), one.series?.toLocaleString("en-GB"), one.points?.toLocaleString("en-GB")];
    const own = one.own_ms && one.own_ms === most ? "number most" : "number";
    return el("tr", {}, node, el("td", { class: "faint", text: one.about }), ...cells.map((text, at) => number(text, at === 1 ? own : "number")));
  });
  return table("Plan", ["Node", "How", "ms", "Own ms", "Series", "Points"], 2, lines);
}

/** @param {any} origin */
function readTable({ engine, fetched }) {
  const lines = fetched.slice(0, READS_MOST).map((/** @type {any} */ one) => {
    const parts = one.parts.map((/** @type {any} */ part) => [`${part.engine} ${moment(part.start_ms)} – ${moment(part.end_ms)}`, part.samples && plural(part.samples, "sample"), part.detail].filter(Boolean).join(", "));
    const how = one.reduced ? "reduced in the store" : one.statistics.join(" ");
    const cells = [duration(one.grid.step_ms), one.series, one.grid.n, one.bytes].map((value) => value.toLocaleString("en-GB"));
    return el("tr", {}, el("th", { scope: "row", class: "mono name-cell", text: one.selector }), el("td", { text: parts.join("; ") || engine }), el("td", { class: "faint", text: how }), ...[...cells, time(one.ms)].map((text) => number(text, "number")));
  });
  return table("Read from the stores", ["Selector", "From", "Statistics", "Level", "Series", "Buckets", "Bytes", "ms"], 3, lines);
}

/** @param {string} caption @param {string[]} names @param {number} texts columns before those of numbers @param {HTMLElement[]} lines */
function table(caption, names, texts, lines) {
  const heads = names.map((text, at) => el("th", { scope: "col", class: at < texts ? null : "number", text }));
  return el("table", { class: "grid plan" }, el("caption", { text: caption }), el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...lines));
}

/** @param {string|undefined} text @param {string} style */
function number(text, style) {
  if (text === undefined) return el("td", { class: style }, el("span", { role: "img", "aria-label": "part of the node above", text: "–" }));
  return el("td", { class: style, text });
}

/** @param {number|undefined} ms */
const time = (ms) => ms?.toLocaleString("en-GB", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
