// Heat map over time, of dashboards and of the page of queries.

import { endsOf } from "./api.js";
import { announce, el, fill } from "./dom.js";
import { moment } from "./format.js";
import { isDark } from "./series.js";

const SHOWN_MOST = 100;

/** @typedef {import("./series.js").Row} Row */

/** Returns the rows of a heat map, lowest first: buckets of a histogram without the ones below them. @param {Row[]} rows */
function bands(rows) {
  const bound = (/** @type {Row} */ row) => Number((row.series.labels.le ?? "").replace("+Inf", "Infinity"));
  const numeric = rows.filter((row) => row.numbers).slice(0, SHOWN_MOST);
  if (!numeric.every((row) => row.series.labels.le !== undefined && !Number.isNaN(bound(row)))) return numeric.map((row) => ({ name: row.short, values: row.numbers ?? [] }));
  numeric.sort((a, b) => bound(a) - bound(b));
  return numeric.map((row, i) => ({
    name: `≤ ${row.series.labels.le}`,
    values: (row.numbers ?? []).map((value, at) => (value === null ? null : Math.max(0, value - (i ? (numeric[i - 1].numbers?.[at] ?? 0) : 0)))),
  }));
}

/**
 * Draws a heat map: a line for each series, or for each bucket of a histogram (label `le`).
 * @param {HTMLElement} place @param {Row[]} rows with numbers in some @param {any} grid
 * @param {{title: string, format: (value: number) => string}} look
 */
export function drawHeat(place, rows, grid, { title, format }) {
  const lines = bands(rows), ends = endsOf(grid);
  const most = Math.max(...lines.flatMap((line) => line.values.map((value) => value ?? 0)), 0);
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "heat", tabindex: "0", role: "img", "data-key": "heat", "aria-label": `Heat map ${title}: ${lines.length} rows, ${moment(ends[0])} to ${moment(ends[ends.length - 1])}, up to ${format(most)}` }));
  const names = el("ul", { class: "heat-names", "aria-hidden": "true" }, ...[...lines].reverse().map((line) => el("li", { text: line.name })));
  const told = el("p", { class: "heat-told faint", text: `${moment(ends[0])} – ${moment(ends[ends.length - 1])}, darkest ${format(most)}` });
  fill(place, [el("div", { class: "heat-box" }, names, canvas), told]);
  canvas.width = ends.length;
  canvas.height = lines.length;
  const pen = canvas.getContext("2d");
  const colour = isDark() ? [102, 169, 239] : [0, 76, 156];
  lines.forEach((line, i) => line.values.forEach((value, at) => {
    if (!pen || !value) return;
    pen.fillStyle = `rgba(${colour.join(",")},${0.08 + 0.92 * Math.sqrt(value / most)})`;
    pen.fillRect(at, lines.length - 1 - i, 1, 1);
  }));
  let at = ends.length, line = 0;
  const tell = () => {
    const value = lines[line].values[at];
    told.textContent = `${moment(ends[at])}, ${lines[line].name}: ${value === null || value === undefined ? "missing" : format(value)}`;
  };
  canvas.addEventListener("mousemove", (event) => {
    at = Math.max(0, Math.min(ends.length - 1, Math.floor((event.offsetX / canvas.clientWidth) * ends.length)));
    line = Math.max(0, Math.min(lines.length - 1, lines.length - 1 - Math.floor((event.offsetY / canvas.clientHeight) * lines.length)));
    tell();
  });
  canvas.addEventListener("keydown", (event) => {
    const moves = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] });
    if (!(event.key in moves)) return;
    event.preventDefault();
    at = Math.max(0, Math.min(ends.length - 1, at + moves[event.key][0]));
    line = Math.max(0, Math.min(lines.length - 1, line + moves[event.key][1]));
    tell();
    announce(told.textContent ?? "");
  });
}
