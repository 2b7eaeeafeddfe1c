// Legend: one line per drawn series with its statistics; a click shows it alone, the mark hides it.

import { el, fill } from "./dom.js";
import { compact } from "./format.js";
import { isDark, shortText, statistics, styleOf } from "./series.js";

const SVG = "http://www.w3.org/2000/svg";
const COLUMNS = /** @type {const} */ (["last", "min", "mean", "max"]);

/**
 * Creates a short line in the style of a series.
 * @param {{colour: string, dash: number[]}} style
 */
export function swatch({ colour, dash }) {
  const svg = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "line");
  for (const [name, value] of [["viewBox", "0 0 22 10"], ["width", "22"], ["height", "10"], ["aria-hidden", "true"], ["class", "swatch"]]) {
    svg.setAttribute(name, value);
  }
  const looks = { x1: "1", y1: "5", x2: "21", y2: "5", stroke: colour, "stroke-width": "2.5", "stroke-dasharray": dash.join(" ") };
  for (const [name, value] of Object.entries(looks)) if (value) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

/**
 * @typedef {object} Choice visible series of the drawn rows
 * @property {string} only key of the one series that is shown, "" for all
 * @property {Set<string>} hidden keys
 */

export class Legend {
  /**
   * @param {HTMLElement} place
   * @param {{pick: (key: string) => void, hide: (key: string) => void, point: (key: string|null) => void}} actions
   */
  constructor(place, actions) {
    this.place = place;
    this.actions = actions;
    /** @type {typeof COLUMNS[number]|""} */ this.sorted = "";
    place.addEventListener("mouseleave", () => actions.point(null));
  }

  /**
   * @param {import("./series.js").Row[]} rows drawn
   * @param {Choice} choice
   * @param {string} common name and labels that all rows share
   */
  draw(rows, choice, common) {
    this.last = { rows, choice, common };
    const lines = rows.map((row, i) => ({ row, i, stats: statistics(row) }));
    const by = this.sorted;
    if (by) lines.sort((a, b) => descending(a.stats[by], b.stats[by]));
    const body = el("tbody", {}, ...lines.map(({ row, i, stats }) => this._line(row, styleOf(rows, i, isDark()), stats, choice)));
    fill(this.place, [el("table", { class: "grid" }, this._head(common), body)]);
  }

  /** @param {string} common */
  _head(common) {
    const first = el("th", { scope: "col", colspan: "2", class: "common" }, el("span", { class: "mono", text: common || "Series" }));
    const rest = COLUMNS.map((name) => {
      const pressed = this.sorted === name;
      const button = el("button", { type: "button", class: "sort", "data-key": `sort ${name}`, text: pressed ? `${name} ↓` : name, onclick: () => this._sort(name) });
      return el("th", { scope: "col", class: "number", "aria-sort": pressed ? "descending" : "none" }, button);
    });
    return el("thead", {}, el("tr", {}, first, ...rest));
  }

  /** @param {typeof COLUMNS[number]} name */
  _sort(name) {
    this.sorted = this.sorted === name ? "" : name;
    if (this.last) this.draw(this.last.rows, this.last.choice, this.last.common);
  }

  /**
   * @param {import("./series.js").Row} row @param {{colour: string, dash: number[]}} style
   * @param {ReturnType<typeof statistics>} stats @param {Choice} choice
   */
  _line(row, style, stats, choice) {
    const off = choice.only ? choice.only !== row.key : choice.hidden.has(row.key);
    const hide = el("button", {
      type: "button", class: "swatch-button", "aria-label": `Show ${row.short}`, "aria-pressed": String(!off), title: "Show or hide",
      "data-key": `hide ${row.key}`, onclick: () => this.actions.hide(row.key),
    }, swatch(style));
    const name = el("button", {
      type: "button", class: "link mono", "aria-pressed": String(choice.only === row.key), title: `${row.key}\nClick: only this one`,
      "data-key": `pick ${row.key}`, text: row.short, onclick: (/** @type {MouseEvent} */ event) => this._clicked(event, row.key),
    });
    const line = el("tr", { class: off ? "off" : null }, el("td", { class: "swatch-cell" }, hide), el("td", { class: "name-cell" }, name));
    for (const column of COLUMNS) {
      const value = stats[column];
      const text = value === null ? "–" : column === "mean" && !row.format ? compact(value) : shortText(row, value);
      line.append(el("td", { class: "number", text }));
    }
    line.addEventListener("mouseenter", () => this.actions.point(off ? null : row.key));
    return line;
  }

  /** @param {MouseEvent} event @param {string} key */
  _clicked(event, key) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) this.actions.hide(key);
    else this.actions.pick(key);
  }
}

/** Compares two statistics, NaN and missing ones last. @param {number|null} a @param {number|null} b */
function descending(a, b) {
  const size = (/** @type {number|null} */ value) => (value === null || Number.isNaN(value) ? -Infinity : value);
  return size(a) === size(b) ? 0 : size(b) - size(a);
}
