// Table view: series x newest values, with pages for both, every value in full.

import { endsOf } from "./api.js";
import { el, fill } from "./dom.js";
import { clock, day, exact, minute, plural } from "./format.js";

const ROWS = 50;
const COLUMNS = 10;

export class Table {
  /** @param {HTMLElement} place @param {HTMLElement} tools */
  constructor(place, tools) {
    this.place = place;
    this.tools = tools;
    this.row = 0;
    this.column = 0;
    this.sorted = false;
  }

  /** Returns to the first page, for a new answer. */
  rewind() {
    this.row = 0;
    this.column = 0;
  }

  /**
   * @param {import("./series.js").Row[]} rows
   * @param {import("./api.js").Matrix["grid"]} grid
   */
  draw(rows, grid) {
    this.last = { rows, grid };
    this.row = Math.min(this.row, Math.max(0, Math.ceil(rows.length / ROWS) - 1) * ROWS);
    this.column = Math.min(this.column, Math.max(0, Math.ceil(grid.n / COLUMNS) - 1) * COLUMNS);
    const ordered = this.sorted ? [...rows].sort((a, b) => newest(b) - newest(a)) : rows;
    const buckets = Array.from({ length: Math.min(COLUMNS, grid.n - this.column) }, (_, i) => grid.n - 1 - this.column - i);
    const shown = ordered.slice(this.row, this.row + ROWS);
    const body = el("tbody", {}, ...shown.map((row) => line(row, buckets)));
    fill(this.place, [el("table", { class: "grid values" }, this._head(grid, buckets), body)]);
    fill(this.tools, [this._pager(rows.length, ROWS, "row", "series"), this._pager(grid.n, COLUMNS, "column", "points, newest first"), this._order()]);
  }

  /** @param {import("./api.js").Matrix["grid"]} grid @param {number[]} buckets */
  _head(grid, buckets) {
    const all = endsOf(grid);
    const ends = buckets.map((i) => all[i]);
    const cells = ends.map((ms, i) => {
      const text = grid.step_ms % 60_000 ? clock(ms) : minute(ms);
      const turned = i === 0 || day(ms) !== day(ends[i - 1]);
      const iso = new Date(ms).toISOString();
      return el("th", { scope: "col", class: "number" }, el("time", { datetime: iso, title: iso, text: turned ? `${day(ms)} ${text}` : text }));
    });
    return el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Series" }), el("th", { scope: "col", text: "Type" }), ...cells));
  }

  /** @param {number} total @param {number} size @param {"row"|"column"} axis @param {string} what */
  _pager(total, size, axis, what) {
    const from = this[axis], to = Math.min(total, from + size);
    const step = (/** @type {number} */ by) => () => {
      this[axis] = Math.max(0, this[axis] + by);
      if (this.last) this.draw(this.last.rows, this.last.grid);
    };
    const text = total <= size ? plural(total, what, what) : `${from + 1}–${to} of ${total.toLocaleString("en-GB")} ${what}`;
    const back = el("button", { type: "button", "data-key": `${axis} back`, "aria-label": `Previous ${what}`, text: "‹", disabled: from === 0, onclick: step(-size) });
    const on = el("button", { type: "button", "data-key": `${axis} on`, "aria-label": `Next ${what}`, text: "›", disabled: to >= total, onclick: step(size) });
    return el("div", { class: "pager" }, ...(total > size ? [back, on] : []), el("span", { class: "faint", text }));
  }

  _order() {
    const change = () => {
      this.sorted = !this.sorted;
      this.row = 0;
      if (this.last) this.draw(this.last.rows, this.last.grid);
    };
    return el("button", { type: "button", class: "plain", "data-key": "order", "aria-pressed": String(this.sorted), text: this.sorted ? "Largest first" : "In order of series", onclick: change });
  }
}

/** @param {import("./series.js").Row} row @returns {number} sort key */
function newest(row) {
  return row.numbers?.findLast((value) => value !== null && value !== undefined) ?? -Infinity;
}

/** @param {import("./series.js").Row} row @param {number[]} buckets */
function line(row, buckets) {
  const cells = buckets.map((i) => {
    const value = row.series.values[i] ?? null;
    if (value === null) return el("td", { class: "number missing" }, el("span", { "aria-label": "missing", role: "img", text: "–" }));
    return el("td", { class: row.numbers ? "number" : "text", text: exact(value) });
  });
  return el("tr", {}, el("th", { scope: "row", class: "mono" }, ...broken(row.key)), el("td", { class: "faint", text: row.series.type.toLowerCase() }), ...cells);
}

/** Returns a long text that may break after its commas. @param {string} text @returns {(Node|string)[]} */
function broken(text) {
  return text.split(/(?<=,)/).flatMap((part, i) => (i ? [el("wbr"), part] : [part]));
}
