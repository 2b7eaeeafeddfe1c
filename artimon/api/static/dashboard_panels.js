// Panels of a dashboard: one class, and a drawing function for each kind. Texts come only through textContent.

import { endsOf } from "./api.js";
import { Chart } from "./chart.js";
import { listed } from "./completeness.js";
import { el, fill, mark } from "./dom.js";
import { moment } from "./format.js";
import { Legend } from "./legend.js";
import { answers, judged, lacks, readable, reduced, selectsNothing, SHARED_S, unitText } from "./dashboard_values.js";
import { drawHeat } from "./heat_map.js";
import { DRAWN_MOST } from "./series.js";
import { durationText } from "./time_range.js";

const SHOWN_MOST = 100;
const ROW_PX = 36;
const STATE_WORDS = /** @type {Record<string, string>} */ ({ good: "good", warn: "warning", bad: "bad" });

/** @typedef {import("./dashboard_values.js").Chosen} Chosen */
/** @typedef {Awaited<ReturnType<typeof answers>>} Answers */

export class PanelView {
  /**
   * @param {any} panel as in the file @param {number} number its place in the dashboard
   * @param {Record<string, Chosen>} chosen
   * @param {{full: (number: number) => void, zoom: (chart: Chart, zoom: [number, number]|null) => void}} actions
   */
  constructor(panel, number, chosen, actions) {
    this.panel = panel;
    this.number = number;
    this.chosen = chosen;
    this.title = readable(panel.title, chosen);
    /** @type {Answers|null} */ this.found = null;
    /** @type {import("./dashboard_values.js").Round|null} */ this.round = null;
    /** True if the card is seen, or nearly. */ this.near = true;
    this.choice = { only: "", hidden: /** @type {Set<string>} */ (new Set()) };
    this.body = el("div", { class: `panel-body ${panel.kind}` });
    this.problem = el("p", { class: "problem", role: "status" });
    this.notes = el("span", {});
    this.lack = el("span", {});
    /** Range and time of the last measurement of what is missing. */ this.measured = { range_ms: 0, at_ms: 0 };
    const id = `panel-${number}-${Math.random().toString(36).slice(2, 8)}`;
    const full = el("button", { type: "button", class: "plain full", "aria-label": `Whole window: ${this.title || panel.kind}`, title: "Whole window (f)", text: "⤢", onclick: () => actions.full(number) });
    const head = el("div", { class: "panel-head" }, el("h3", { id, text: this.title || (panel.kind === "text" ? "Text" : "Panel"), class: this.title ? "" : "unseen", title: panel.description || null }), this.lack, this.notes, linksOf(panel.links, chosen), full);
    this.card = el("section", { class: "card panel", "aria-labelledby": id, "data-panel": number }, head, this.problem, this.body);
    this.card.style.gridColumn = `span ${panel.width}`;
    this.card.style.minHeight = this.card.style.height = `${panel.height * ROW_PX}px`;
    if (panel.kind === "chart") this._chart(actions);
    if (panel.kind === "text") fill(this.body, panel.text.split(/\n{2,}/).map((/** @type {string} */ text) => el("p", { text: readable(text, chosen) })));
  }

  /** @param {{zoom: (chart: Chart, zoom: [number, number]|null) => void}} actions */
  _chart(actions) {
    const figure = el("figure", { class: "chart", tabindex: "0", "aria-label": "Chart" });
    const legend = el("div", { class: "legend", tabindex: "0", role: "region", "aria-label": `Legend: ${this.title}` });
    this.body.append(figure, legend);
    const { unit, min, max } = this.panel;
    this.chart = new Chart(figure, (zoom) => this.chart && actions.zoom(this.chart, zoom), { sync: "dashboard", format: unit ? (value) => unitText(value, unit) : undefined, min, max });
    this.legend = new Legend(legend, {
      pick: (key) => { this.choice.only = this.choice.only === key ? "" : key; this.draw(); },
      hide: (key) => { if (!this.choice.hidden.delete(key)) this.choice.hidden.add(key); this.draw(); },
      point: (key) => this.chart?.highlight(key),
    });
  }

  /** True if this round was asked. @param {import("./dashboard_values.js").Round} round */
  isOf(round) {
    return this.round === round;
  }

  /** Asks and draws. @param {import("./dashboard_values.js").Round} round */
  async load(round) {
    this.round = round;
    if (this.panel.kind === "text") return;
    this.card.setAttribute("aria-busy", "true");
    try {
      this.found = await answers(round, this.panel, this.chosen);
      this.problem.textContent = "";
      const told = [...this.found.notes, ...(this.found.origin.includes("history") ? [this.found.origin] : [])];
      fill(this.notes, told.length ? [noteOf(told)] : []);
      this.draw();
      void this._measure(round);
    } catch (error) {
      if (round.signal.aborted) throw error;
      const told = error instanceof Error ? error.message : String(error);
      this.problem.textContent = selectsNothing(error) ? "" : told;
      if (selectsNothing(error)) return this._empty(`No data: ${told.split(";")[0]}`);
      throw error;
    } finally {
      this.card.setAttribute("aria-busy", "false");
    }
  }

  /** Shows a mark if data is missing; asked after the answer, once in two minutes. @param {import("./dashboard_values.js").Round} round */
  async _measure(round) {
    const range_ms = round.span.end_ms - round.span.start_ms, now = Date.now();
    if (this.measured.range_ms === range_ms && now - this.measured.at_ms < SHARED_S * 1000) return;
    this.measured = { range_ms, at_ms: now };
    const found = await lacks(round, this.panel, this.chosen);
    if (round.signal.aborted) this.measured.at_ms = 0;
    else if (this.measured.at_ms === now) fill(this.lack, found.length ? [lackOf(found, range_ms)] : []);
  }

  draw() {
    if (!this.found) return;
    const { rows, grid } = this.found;
    if (!rows.length || (this.panel.kind === "chart" && !rows.some((row) => row.numbers))) return this._empty();
    this.body.querySelector(".nothing")?.remove();
    if (this.chart && this.legend) {
      const drawn = rows.filter((row) => row.numbers).slice(0, DRAWN_MOST);
      const shown = (/** @type {any} */ row) => (this.choice.only ? this.choice.only === row.key : !this.choice.hidden.has(row.key));
      this.chart.figure.hidden = this.legend.place.hidden = false;
      this.chart.draw(drawn, grid, shown);
      this.legend.draw(drawn, this.choice, rows.length > drawn.length ? `${drawn.length} of ${rows.length} series` : "Series");
    } else {
      KINDS[this.panel.kind](this, rows, grid);
    }
  }

  /** @param {string} [text] */
  _empty(text = "No series in this range") {
    if (this.chart && this.legend) {
      this.chart.clear();
      this.chart.figure.hidden = this.legend.place.hidden = true;
      this.body.querySelector(".nothing")?.remove();
      this.body.append(el("p", { class: "nothing", text }));
    } else {
      fill(this.body, [el("p", { class: "nothing", text })]);
    }
  }

  recolour() {
    this.chart?.recolour();
    this.draw();
  }
}

/** Returns a mark with the notes of an answer. @param {string[]} notes */
function noteOf(notes) {
  return el("span", { class: "note", role: "img", "aria-label": `Notes: ${notes.join("; ")}`, title: notes.join("\n"), text: "ⓘ" });
}

/** Returns a mark for missing data that leads to the query in Explore. @param {Awaited<ReturnType<typeof lacks>>} found @param {number} range_ms */
function lackOf(found, range_ms) {
  const texts = [...new Set(found.map((one) => one.found.text))], hosts = [...new Set(found.map((one) => listed(one.found)).filter(Boolean))];
  const to = new URLSearchParams({ q: found[0].q, lang: found[0].lang, range: durationText(range_ms) });
  return el("a", { class: "lack", href: `./?${to}`, "aria-label": `Data is missing: ${texts.join("; ")}`, title: [...texts, ...hosts].join("\n") }, mark("warn"));
}

/** @param {any[]} links @param {Record<string, Chosen>} chosen */
export function linksOf(links, chosen) {
  const safe = (/** @type {string} */ url) => (/^(https?:\/\/|\/(?![/\\])|\?|dashboards\?)/.test(url) ? url : "#");
  return el("span", { class: "panel-links" }, ...links.map((one) => el("a", { href: safe(readable(one.url, chosen, true)), rel: "noopener noreferrer", text: readable(one.title, chosen) || one.url })));
}

/** @typedef {import("./series.js").Row} Row */
/** @type {Record<string, (view: PanelView, rows: Row[], grid: any) => void>} */
const KINDS = { value: drawValues, bars: drawBars, table: drawTable, heatmap: (view, rows, grid) => drawHeat(view.body, rows, grid, { title: view.title, format: (value) => unitText(value, view.panel.unit) }), states: drawStates };

/** Returns a text with the word of its state for those who do not see colours. @param {{text: string, state: string}} found @param {string} tag @param {string} look */
function stated({ text, state }, tag, look) {
  const word = STATE_WORDS[state];
  return el(tag, { class: `${look} ${state}`, text }, word && state !== "good" ? el("span", { class: `mark ${state}`, role: "img", "aria-label": word }) : null);
}

/** @param {PanelView} view @param {Row[]} rows */
function drawValues(view, rows) {
  const shown = rows.slice(0, SHOWN_MOST).map((row) => {
    const value = reduced(row, view.panel.reduce);
    const text = row.numbers ? value : row.series.values.findLast((one) => one !== null);
    const found = typeof text === "number" ? judged(view.panel, text) : { text: String(text ?? "–"), state: "" };
    return el("li", {}, stated(found, "span", "big"), rows.length > 1 || view.panel.queries[0].legend ? el("span", { class: "faint", text: row.short }) : null);
  });
  fill(view.body, [el("ul", { class: "values-list" }, ...shown)]);
}

/** @param {PanelView} view @param {Row[]} rows */
function drawBars(view, rows) {
  const found = rows.map((row) => ({ row, value: reduced(row, view.panel.reduce) })).filter((one) => one.value !== null);
  found.sort((a, b) => Number(b.value) - Number(a.value));
  const low = view.panel.min ?? 0, high = view.panel.max ?? Math.max(...found.map((one) => Number(one.value)));
  const lines = found.slice(0, SHOWN_MOST).map(({ row, value }) => {
    const told = judged(view.panel, Number(value));
    const bar = el("span", { class: `bar ${told.state}` });
    bar.style.width = `${Math.max(0, Math.min(100, ((Number(value) - low) / (high - low || 1)) * 100))}%`;
    return el("li", {}, el("span", { class: "bar-name", text: row.short, title: row.key }), el("span", { class: "bar-track", "aria-hidden": "true" }, bar), stated(told, "span", "number"));
  });
  fill(view.body, [scrolled(view, el("ul", { class: "bars-list" }, ...lines))]);
}

/** @param {PanelView} view @param {Row[]} rows */
function drawTable(view, rows) {
  const labels = [...new Set(rows.flatMap((row) => Object.keys(row.series.labels)))].sort();
  const many = new Set(rows.map((row) => row.series.name)).size > 1;
  const head = el("tr", {}, ...[...(many ? ["name"] : []), ...labels].map((text) => el("th", { scope: "col", text })), el("th", { scope: "col", class: "number", text: view.panel.reduce }));
  const lines = rows.slice(0, 5 * SHOWN_MOST).map((row) => {
    const value = row.numbers ? reduced(row, view.panel.reduce) : row.series.values.findLast((one) => one !== null);
    const told = typeof value === "number" ? judged(view.panel, value) : { text: String(value ?? "–"), state: "" };
    return el("tr", {}, many ? el("td", { text: row.series.name }) : null, ...labels.map((label) => el("td", { text: row.series.labels[label] ?? "" })), stated(told, "td", "number"));
  });
  const more = rows.length > lines.length ? el("p", { class: "faint", text: `${lines.length} of ${rows.length} series` }) : null;
  fill(view.body, [scrolled(view, el("table", { class: "grid" }, el("thead", {}, head), el("tbody", {}, ...lines)), more)]);
}

/** @param {PanelView} view @param {...(Node|null)} children */
function scrolled(view, ...children) {
  return el("div", { class: "panel-scroll", tabindex: "0", role: "region", "aria-label": `Values: ${view.title || view.panel.kind}`, "data-key": "scroll" }, ...children);
}

/** @param {PanelView} view @param {Row[]} rows @param {any} grid */
function drawStates(view, rows, grid) {
  const ends = endsOf(grid);
  /** @type {Map<string, number>} */ const kinds = new Map();
  const lines = rows.slice(0, SHOWN_MOST).map((row) => {
    const cells = row.series.values.map((value, i) => (value === null ? null : row.numbers && row.numbers[i] !== null ? judged(view.panel, Number(row.numbers[i])) : { text: String(value), state: "" }));
    /** @type {{text: string, state: string, from: number, n: number}[]} */ const parts = [];
    cells.forEach((cell, i) => {
      const last = parts[parts.length - 1], text = cell?.text ?? "";
      if (last && last.text === text) last.n += 1;
      else parts.push({ text, state: cell ? cell.state : "missing", from: i, n: 1 });
    });
    const track = parts.map(({ text, state, from, n }) => {
      if (!kinds.has(text)) kinds.set(text, kinds.size % 6);
      const look = state || `kind-${kinds.get(text)}`;
      const shown = text || "missing";
      const part = el("span", { class: `part ${look}`, title: `${shown}, ${moment(ends[from])} – ${moment(ends[from + n - 1])}`, text: n > ends.length / 12 ? text : "" });
      part.style.flexGrow = String(n);
      return part;
    });
    const now = parts[parts.length - 1];
    return el("li", {}, el("span", { class: "bar-name", text: row.short, title: row.key }), el("span", { class: "track", "aria-hidden": "true" }, ...track), el("span", { class: "unseen", text: `${now?.text || "missing"} now, ${parts.length - 1} changes` }));
  });
  fill(view.body, [scrolled(view, el("ul", { class: "states-list" }, ...lines), el("p", { class: "faint states-time", text: `${moment(ends[0])} – ${moment(ends[ends.length - 1])}` }))]);
}
