// Conversion of the series of a matrix to rows that chart, legend and table share.

import { endsOf, stepOf } from "./api.js";
import { compact, seriesText } from "./format.js";
import { durationText } from "./time_range.js";

/** Maximum number of series drawn and listed at once. */
export const DRAWN_MOST = 200;
/** Number of distinct pairs of colour and dash. */
export const DASHED_MOST = 28;

// Contrast of at least 3 against the card, distinguishable with any colour vision (tests/page/test_colours.py measures
// both); neighbours also differ in dash.
const LIGHT = ["#004c9c", "#e46c0f", "#1c9b5e", "#c766a0", "#683e04", "#322446", "#8633ec"];
const DARK = ["#66a9ef", "#ff713b", "#22e296", "#c999c1", "#e9de42", "#d2e9e7", "#8f7bff"];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const BEFORE = [5, 4];

/**
 * @typedef {object} Row
 * @property {string} key canonical text of the series
 * @property {string} short the same without the common name and labels
 * @property {import("./api.js").Series} series
 * @property {(number|null)[]|null} numbers values to draw, one per bucket; null for a series of texts
 * @property {(value: number) => string} [format] of values with a unit
 * @property {string} [like] key of the row of now, for one of an earlier time that is compared with it
 */

/**
 * @param {import("./api.js").Matrix} matrix
 * @returns {{rows: Row[], common: string}} `common`: name and labels that every series has
 */
export function rowsOf(matrix) {
  const all = matrix.series;
  const shared = all.length > 1 ? commonOf(all) : { name: "", labels: {} };
  const rows = all.map((series) => {
    const own = Object.fromEntries(Object.entries(series.labels).filter(([label]) => !(label in shared.labels)));
    const short = seriesText(shared.name ? "" : series.name, own);
    return { key: seriesText(series.name, series.labels), short, series, numbers: numbersOf(series) };
  });
  return { rows, common: shared.name || Object.keys(shared.labels).length ? seriesText(shared.name, shared.labels) : "" };
}

/**
 * @typedef {object} Answered answer of one of several queries
 * @property {import("./api.js").Matrix} matrix
 * @property {string} name of the query, "" for the only one
 * @property {number} [back_ms] the answer is of this long before, and is drawn at the times of now
 */

/**
 * Puts the series of several answers on one grid, that of all their times.
 * @param {Answered[]} found
 * @param {null|undefined} absent cell at a time that an answer does not have; the line of a chart crosses undefined ones
 */
export function united(found, absent) {
  const { rows, common } = rowsOf({ .../** @type {any} */ (found[0].matrix), series: found.flatMap((one) => one.matrix.series) });
  if (found.length === 1) return { rows, common, grid: found[0].matrix.grid };
  const endsNow = (/** @type {Answered} */ one) => endsOf(one.matrix.grid).map((ms) => ms + (one.back_ms ?? 0));
  const ends = [...new Set(found.flatMap(endsNow))].sort((a, b) => a - b);
  const step_ms = Math.min(...found.map((one) => stepOf(one.matrix.grid)));
  const grid = { start_ms: Math.min(...found.map((one) => one.matrix.grid.start_ms + (one.back_ms ?? 0))), end_ms: ends[ends.length - 1], step_ms, n: ends.length, ends_ms: ends };
  const left = [...rows];
  const moved = found.flatMap((one) => {
    const own = new Map(endsNow(one).map((ms, at) => [ms, at])), places = ends.map((ms) => own.get(ms) ?? -1);
    const put = (/** @type {any[]} */ values) => places.map((at) => (at < 0 ? absent : values[at]));
    const before = one.back_ms ? `, ${durationText(one.back_ms)} before` : "", name = one.name && `${one.name} `;
    return left.splice(0, one.matrix.series.length).map((row) => ({
      ...row, key: `${name}${row.key}${before}`, short: `${name}${row.short}${before}`, like: before ? `${name}${row.key}` : undefined,
      numbers: row.numbers && put(row.numbers), series: { ...row.series, values: put(row.series.values) },
    }));
  });
  return { rows: moved, common, grid };
}

/** Returns a legend with the values of the labels of a row in place of `{label}`. @param {string} legend @param {Row} row */
export function legendText(legend, row) {
  return legend.replace(/\{([A-Za-z_][\w.]*)\}/g, (_whole, label) => (label === "__name__" ? row.series.name : (row.series.labels[label] ?? ""))).trim();
}

/** @param {import("./api.js").Series[]} all @returns {{name: string, labels: Record<string, string>}} */
function commonOf(all) {
  const name = all.every((one) => one.name === all[0].name) ? all[0].name : "";
  const labels = Object.entries(all[0].labels).filter(([key, value]) => all.every((one) => one.labels[key] === value));
  return { name, labels: Object.fromEntries(labels) };
}

/** @param {import("./api.js").Series} series @returns {(number|null)[]|null} */
function numbersOf(series) {
  if (series.type === "STRING") return null;
  return series.values.map((value) => {
    if (value === null || typeof value === "string") return null; // NaN and infinities cannot be drawn
    return Number(value);
  });
}

/**
 * Rows whose text has every word of `filter`.
 * @param {Row[]} rows
 * @param {string} filter
 */
export function matching(rows, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    const key = row.key.toLowerCase();
    return words.every((word) => key.includes(word));
  });
}

/**
 * Line style of the drawn row `index`. A row of an earlier time has the colour of that of now, and alone is dashed.
 * @param {Row[]} rows drawn
 * @param {number} index
 * @param {boolean} dark
 * @returns {{colour: string, dash: number[], width: number}}
 */
export function styleOf(rows, index, dark) {
  const colours = dark ? DARK : LIGHT, { like } = rows[index];
  const now = like === undefined ? index : Math.max(0, rows.findIndex((row) => row.key === like));
  const solid = rows.length > DASHED_MOST || rows.some((row) => row.like !== undefined);
  return { colour: colours[now % colours.length], dash: like !== undefined ? BEFORE : solid ? [] : DASHES[index % DASHES.length], width: like === undefined ? 1.75 : 1.25 };
}

/**
 * Infinities count; NaN counts only where there is nothing else, and as the last value.
 * @param {Row} row
 * @returns {{last: number|null, min: number|null, mean: number|null, max: number|null}} null: nothing but missing values
 */
export function statistics(row) {
  let last = null, min = Infinity, max = -Infinity, sum = 0, count = 0;
  for (const cell of row.numbers ? row.series.values : []) {
    if (cell === null || cell === undefined) continue;
    const value = (last = Number(cell)); // "NaN" and "Infinity" are texts in JSON
    if (Number.isNaN(value)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    count += 1;
  }
  if (count) return { last, min, mean: sum / count, max };
  return { last, min: last, mean: last, max: last };
}

/** Formats a value of `row` in short form; true or false for a BOOLEAN. @param {Row} row @param {number} value */
export function shortText(row, value) {
  if (row.format) return row.format(value);
  return row.series.type === "BOOLEAN" && (value === 0 || value === 1) ? String(value === 1) : compact(value);
}

/** Formats the value of one bucket in short form; null if missing. @param {Row} row @param {number} index @returns {string|null} */
export function cellText(row, index) {
  const cell = row.series.values[index] ?? null;
  return cell === null ? null : shortText(row, Number(cell));
}

/** True if the page is dark now. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
