// Raw samples of one series, as the API of Prometheus answers a range selector.

import { ask, QUERY_DEADLINE_MS } from "./api.js";
import { el, fill } from "./dom.js";
import { duration, moment, plural, quote } from "./format.js";

const SHOWN_MOST = 1_000;
/** Longest range that is read, up to the end of the page's range. */
const LONGEST_MS = 86_400_000;

export class Samples {
  /** @param {HTMLElement} place @param {HTMLElement} tools @param {(key: string) => void} pick chooses the one series */
  constructor(place, tools, pick) {
    this.place = place;
    this.tools = tools;
    this.pick = pick;
    this.abort = new AbortController();
  }

  /**
   * Asks and lists the samples of the chosen series, else of the first one.
   * @param {import("./series.js").Row[]} rows @param {string} only @param {import("./time_range.js").Span} span
   */
  async draw(rows, only, span) {
    const row = rows.find((one) => one.key === only) ?? rows[0];
    this.abort.abort();
    if (!row) return fill(this.place, []);
    const { signal } = (this.abort = new AbortController());
    const choose = (/** @type {Event} */ event) => this.pick(/** @type {HTMLSelectElement} */ (event.target).value);
    const series = el("select", { "aria-label": "Series", "data-key": "series", onchange: choose }, ...rows.slice(0, SHOWN_MOST).map((one) => el("option", { value: one.key, text: one.key, selected: one === row })));
    const told = el("span", { class: "faint", role: "status" });
    fill(this.tools, [series, told]);
    if (!row.series.name) {
      told.textContent = `${row.key} is computed: it has no samples of its own.`;
      return fill(this.place, []);
    }
    const from_ms = Math.max(span.start_ms, span.end_ms - LONGEST_MS);
    const query = `${selector(row.series)}[${Math.ceil((span.end_ms - from_ms) / 1000)}s]`;
    try {
      const { data, engine } = await ask("v1/query", { query, time: span.end_ms / 1000 }, signal, QUERY_DEADLINE_MS);
      const labels = Object.keys(row.series.labels).length + 1; // a selector finds series with further labels, too
      const found = /** @type {[number, string][]} */ (data.result.find((/** @type {any} */ one) => Object.keys(one.metric).length === labels)?.values ?? []);
      const part = from_ms > span.start_ms ? " in the last day of the range" : "";
      told.textContent = found.length ? `${plural(found.length, "sample")}${part}, from ${engine ?? "memory"}` : `${row.key} has no samples of numbers${part}.`;
      fill(this.place, found.length ? [list(found)] : []);
    } catch (problem) {
      if (signal.aborted) return;
      told.textContent = /** @type {Error} */ (problem).message;
      fill(this.place, []);
    }
  }
}

/** @param {import("./api.js").Series} series @returns {string} PromQL */
function selector({ name, labels }) {
  return `{${[quote(name), ...Object.entries(labels).map(([label, value]) => `${quote(label)}=${quote(value)}`)].join(",")}}`;
}

/** @param {[number, string][]} samples oldest first */
function list(samples) {
  const shown = samples.slice(-SHOWN_MOST), lines = shown.map(([s, value], at) => {
    const ms = Math.round(s * 1000), before = shown[at - 1], iso = new Date(ms).toISOString();
    return el("tr", {}, el("td", {}, el("time", { datetime: iso, text: iso, title: moment(ms) })), el("td", { class: "number", text: value }), el("td", { class: "number", text: before ? duration(ms - Math.round(before[0] * 1000)) : "" }));
  });
  const names = ["Time (UTC)", "Value", "After"].map((text, at) => el("th", { scope: "col", class: at ? "number" : null, text }));
  return el("table", { class: "grid" }, el("thead", {}, el("tr", {}, ...names)), el("tbody", {}, ...lines.reverse()));
}
