// Tooltip beside the cursor with the nearest values.

import { el, fill } from "./dom.js";
import { duration, moment } from "./format.js";
import { cellText, isDark, styleOf } from "./series.js";
import { swatch } from "./legend.js";
import { markText } from "./marks.js";

const SHOWN_MOST = 8;
const AWAY_PX = 14;
/** Distance from the cursor at which a mark is named; those of the bucket are, too. */
const MARK_PX = 7;

export class Tooltip {
  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.figure = figure;
    this.box = el("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
    figure.append(this.box);
  }

  hide() {
    this.box.hidden = true;
  }

  /**
   * Updates the tooltip after the cursor moved.
   * @param {any} u
   * @param {import("./series.js").Row[]} rows
   * @param {{index: number, row: number}} at position of the keyboard cursor
   * @param {import("./marks.js").Mark[]} [marks] those of the chart
   */
  follow(u, rows, at, marks = []) {
    const { idx, left, top } = u.cursor;
    if (idx === null || idx === undefined || left < 0) return this.hide();
    at.index = idx;
    if (!this.box.isConnected) this.figure.append(this.box);
    const near = nearest(u, rows, idx, top);
    const ms = u.data[0][idx] * 1000;
    const step_ms = u.data[0].length > 1 ? (u.data[0][1] - u.data[0][0]) * 1000 : 0;
    const head = el("p", { class: "tooltip-time", text: moment(ms) + (step_ms ? ` · ${duration(step_ms)}` : "") });
    const lines = near.shown.map((i) => line(rows, i, idx));
    if (!lines.length) lines.push(el("p", { class: "faint", text: "no value" }));
    const more = near.left_out ? el("p", { class: "faint", text: `${near.left_out} more` }) : null;
    const from_ms = (u.data[0][idx - 1] ?? u.data[0][idx]) * 1000;
    const isNear = (/** @type {number} */ at_ms) => (at_ms > from_ms && at_ms <= ms) || Math.abs(u.valToPos(at_ms / 1000, "x") - left) < MARK_PX;
    const here = marks.filter((one) => isNear(one.time_ms)).slice(0, SHOWN_MOST).map((one) => el("p", { class: "tooltip-mark", text: markText(one) }));
    fill(this.box, [head, ...here, ...lines, ...(more ? [more] : [])]);
    this.box.hidden = false;
    this._put(u, left, top);
  }

  /** @param {any} u @param {number} left @param {number} top */
  _put(u, left, top) {
    const x = u.over.offsetLeft + left, y = u.over.offsetTop + top;
    const right = x + AWAY_PX + this.box.offsetWidth < this.figure.clientWidth;
    const at = right ? x + AWAY_PX : Math.max(0, x - AWAY_PX - this.box.offsetWidth);
    const lowest = this.figure.clientHeight - this.box.offsetHeight - 4;
    this.box.style.left = `${at}px`;
    this.box.style.top = `${Math.max(0, Math.min(y - 20, lowest))}px`;
  }
}

/**
 * Returns the drawn series nearest to the cursor that have a value, sorted by value.
 * @param {any} u @param {import("./series.js").Row[]} rows @param {number} idx @param {number} top
 */
function nearest(u, rows, idx, top) {
  const wanted = u.posToVal(top, "y");
  const found = [];
  for (let i = 0; i < rows.length; i += 1) {
    const value = rows[i].numbers?.[idx];
    if (u.series[i + 1]?.show && value !== null && value !== undefined) found.push({ i, value });
  }
  found.sort((a, b) => Math.abs(a.value - wanted) - Math.abs(b.value - wanted));
  const shown = found.slice(0, SHOWN_MOST).sort((a, b) => b.value - a.value).map((one) => one.i);
  return { shown, left_out: Math.max(0, found.length - SHOWN_MOST) };
}

/** @param {import("./series.js").Row[]} rows @param {number} i @param {number} idx of a bucket */
function line(rows, i, idx) {
  const row = rows[i], text = cellText(row, idx) ?? "–";
  return el("p", { class: "tooltip-line" }, swatch(styleOf(rows, i, isDark())), el("span", { class: "tooltip-name", text: row.short }), el("span", { class: "number", text }));
}
