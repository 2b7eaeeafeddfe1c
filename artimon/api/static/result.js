// Answer of a query: chart, table, notes, the selection of drawn series, and the text if there is nothing to draw.

import { address } from "./api.js";
import { Chart } from "./chart.js";
import { byId, copy, el, fill } from "./dom.js";
import { Explain } from "./explain.js";
import { compact, duration, moment, plural } from "./format.js";
import { drawHeat } from "./heat_map.js";
import { listMarks } from "./marks.js";
import { isOrigin, originText } from "./question.js";
import { Legend } from "./legend.js";
import { DRAWN_MOST, matching, united } from "./series.js";
import { Samples } from "./samples.js";
import { remember, VIEWS } from "./state.js";
import { Table } from "./table.js";

const NOTES_MOST = 12;
const DRAWN_POINTS_MOST = 400_000;

/** @typedef {import("./api.js").Matrix} Matrix */
/** @typedef {import("./series.js").Answered & import("./explain.js").Asked & {i: number}} Answer of query `i` of the state */

export class Result {
  /** @param {import("./state.js").State} state shared with the page @param {(from_ms: number, to_ms: number) => void} load asks for a zoomed part */
  constructor(state, load) {
    this.state = state;
    /** @type {Answer[]} */ this.answers = [];
    /** @type {Matrix["grid"]} */ this.grid = { start_ms: 0, end_ms: 0, step_ms: 1, n: 0 };
    /** @type {import("./series.js").Row[]} */ this.rows = [];
    this.common = "";
    /** @type {string[]} */ this.notes = [];
    this.span = /** @type {import("./time_range.js").Span} */ ({ start_ms: 0, end_ms: 1, now_ms: 1, live: false });
    this.hidden = /** @type {Set<string>} */ (new Set());
    this.chart = new Chart(byId("chart"), (zoom) => this._zoomed(zoom));
    this.legend = new Legend(byId("legend"), {
      pick: (key) => this._pick(key), hide: (key) => this._hide(key), point: (key) => this.chart.highlight(key),
    });
    this.table = new Table(byId("table"), byId("table-tools"));
    this.samples = new Samples(byId("samples"), byId("samples-tools"), (key) => this._pick(key));
    this.explain = new Explain(byId("explain"), byId("explain-tools"));
    byId("zoom-out").addEventListener("click", () => this.chart.zoomTo(null));
    byId("zoom-load").addEventListener("click", () => this.chart.zoom && load(this.chart.zoom[0] * 1000, this.chart.zoom[1] * 1000));
    byId("show-all").addEventListener("click", () => this._showAll());
    byId("curl").addEventListener("click", () => copy(byId("curl"), curl(this.asked.question)));
    byId("filter").addEventListener("input", () => this._filtered());
  }

  /** Applies the state in the URL. */
  adopt() {
    /** @type {HTMLInputElement} */ (byId("filter")).value = this.state.filter;
    this.hidden.clear();
    const [from, to] = this.state.zoom.split("-").map((ms) => Number(ms) / 1000);
    this.chart.zoom = this.state.zoom && from < to ? [from, to] : null;
  }

  /** True if an answer is shown. */
  get some() {
    return this.answers.length > 0;
  }

  /** Returns the answer of the edited query, else of the first one: that of CSV, curl and the explanation. */
  get asked() {
    return this.answers.find((one) => one.i === this.state.edited) ?? this.answers[0];
  }

  /**
   * Shows new answers.
   * @param {Answer[]} found at least one
   * @param {string[]} notes further ones
   * @param {import("./time_range.js").Span} span
   */
  show(found, notes, span) {
    const before = this.asked?.question.q;
    Object.assign(this, { answers: found, notes, span }, united(found, undefined));
    if (this.asked.question.q !== before) this.table.rewind();
    this.update();
  }

  /** Shows `words` instead of an answer. @param {Node[]} words */
  clear(words) {
    this.answers = [];
    this.rows = [];
    this.chart.clear();
    byId("origin").textContent = "";
    byId("summary").textContent = "";
    byId("notes").hidden = true;
    this._panels(false);
    fill(byId("empty"), words);
  }

  /** Shows marks in the chart, and as a list. @param {import("./marks.js").Mark[]} marks */
  mark(marks) {
    this.chart.mark(marks);
    listMarks(marks);
  }

  /** Draws the current answer as the state says. */
  update() {
    if (!this.some) return;
    const { grid } = this, { view } = this.state;
    const chosen = matching(this.rows, this.state.filter);
    const matrices = this.answers.map((one) => one.matrix);
    this._summary();
    /** @type {HTMLAnchorElement} */ (byId("csv")).href = address("query", { ...this.asked.question.parameters, format: "csv" });
    byId("origin").textContent = originText(matrices);
    this._panels(this.rows.length > 0);
    const lines = [...this.notes.map((text) => el("li", { text })), ...notes(matrices)];
    byId("notes").hidden = !this.rows.length || !lines.length;
    fill(byId("notes"), this.rows.length ? lines : []);
    fill(byId("empty"), this.rows.length ? [] : nothing(lines));
    if (view === "explain") this.explain.draw(this.asked);
    if (!this.rows.length) return this.chart.clear();
    if (view === "explain") return;
    if (view === "table") return this.table.draw(chosen, grid);
    if (view === "samples") return this.samples.draw(chosen, this.state.only, this.span);
    const drawable = chosen.filter((row) => row.numbers);
    if (view === "heat") return drawHeat(byId("heat"), drawable, grid, { title: "", format: (value) => compact(value) });
    const only = this.rows.find((row) => row.key === this.state.only);
    const drawn = drawable.slice(0, Math.max(1, Math.min(DRAWN_MOST, Math.floor(DRAWN_POINTS_MOST / grid.n))));
    if (only?.numbers && !drawn.includes(only)) drawn.push(only);
    const choice = { only: only ? only.key : "", hidden: this.hidden };
    this.chart.draw(drawn, grid, (row) => (choice.only ? row.key === choice.only : !this.hidden.has(row.key)));
    this.legend.draw(drawn, choice, this.common);
    this._legendNote(drawn.length, drawable.length, chosen.length);
    byId("show-all").hidden = !choice.only && !this.hidden.size;
  }

  /** @param {boolean} some true if there is something to show */
  _panels(some) {
    for (const view of VIEWS) byId(`panel-${view}`).hidden = view !== this.state.view || !(some || (view === "explain" && this.some));
    byId("curl").hidden = !some;
    byId("csv").hidden = !some || this.asked.question.route !== "query";
    byId("zoom-out").hidden = byId("zoom-load").hidden = !some || this.state.view !== "chart" || !this.chart.zoom;
  }

  _summary() {
    const { grid, rows } = this;
    const span = `${moment(grid.start_ms)} – ${moment(grid.end_ms)}`;
    byId("summary").textContent = `${plural(rows.length, "series", "series")} · ${plural(grid.n, "point")} of ${grid.step_ms ? duration(grid.step_ms) : "a calendar"} · ${span}`;
  }

  /** @param {number} drawn @param {number} drawable @param {number} chosen */
  _legendNote(drawn, drawable, chosen) {
    const texts = [];
    if (drawn < drawable) texts.push(`${drawn} of ${plural(drawable, "series", "series")} drawn: filter them, or reduce by a label.`);
    if (chosen < this.rows.length) texts.push(`${chosen} of ${this.rows.length} series fit the filter.`);
    if (drawable < chosen) texts.push(`${plural(chosen - drawable, "series", "series")} of texts: see the table.`);
    byId("legend-note").textContent = texts.join(" ");
  }

  _filtered() {
    this.state.filter = /** @type {HTMLInputElement} */ (byId("filter")).value;
    this.table.rewind();
    this._changed();
  }

  /** @param {string} key */
  _pick(key) {
    this.state.only = this.state.only === key ? "" : key;
    this.hidden.clear();
    this._changed();
  }

  /** @param {string} key */
  _hide(key) {
    if (this.state.only) {
      for (const row of this.rows) if (row.key !== this.state.only) this.hidden.add(row.key);
      this.state.only = "";
    }
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this._changed();
  }

  _showAll() {
    this.state.only = "";
    this.hidden.clear();
    this._changed();
    byId("legend").focus({ preventScroll: true });
  }

  /** @param {[number, number]|null} zoom epoch s */
  _zoomed(zoom) {
    this.state.zoom = zoom ? zoom.map((s) => Math.round(s * 1000)).join("-") : "";
    byId("zoom-out").hidden = byId("zoom-load").hidden = !zoom;
    remember(this.state, false);
  }

  _changed() {
    remember(this.state, false);
    this.update();
  }
}

/** Creates a line for each note of the answers. @param {Matrix[]} matrices @returns {HTMLElement[]} */
function notes(matrices) {
  const told = [...new Set(matrices.flatMap((one) => one.notes))].filter((note) => !isOrigin(note));
  const lines = told.slice(0, NOTES_MOST).map((text) => el("li", { text }));
  if (told.length > NOTES_MOST) lines.push(el("li", { text: `and ${told.length - NOTES_MOST} more notes` }));
  if (matrices.some((one) => !one.complete)) lines.unshift(el("li", { text: "Memory does not hold the whole range." }));
  if (matrices.some((one) => one.partial)) lines.unshift(el("li", { class: "warn", text: "Partial: a shard did not answer." }));
  return lines;
}

/** Explains an empty answer by its notes, in place of the chart. @param {HTMLElement[]} lines */
function nothing(lines) {
  const why = lines.length ? el("ul", { class: "notes why", "aria-label": "Why" }, ...lines) : el("p", { text: "No series fits, or none has a value in this range." });
  return [el("p", { class: "empty-title", text: "The answer has no series" }), why];
}

/** @param {import("./question.js").Question} question @returns {string} for a shell */
export function curl({ route, parameters }) {
  const quoted = (/** @type {string} */ text) => `'${text.replace(/'/g, "'\\''")}'`;
  const base = new URL(".", location.href).href;
  const fields = Object.entries(parameters).map(([name, value]) => ` --data-urlencode ${quoted(`${name}=${value}`)}`);
  return `curl -sG ${quoted(`${base}api/${route}`)}${fields.join("")}`;
}
