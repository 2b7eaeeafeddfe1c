// PromQL in the page: the query that is sent for a range, and its answer in the form of the page.

import { stepFor } from "./time_range.js";

export const ROUTE = "v1/query_range";
/** Begin of the remark on series that fell silent: the page measures the completeness itself. */
const MISSING = "data is missing: ";
const NAMED = /** @type {Record<string, string>} */ ({ "+Inf": "Infinity", "-Inf": "-Infinity", NaN: "NaN" });

/** Returns the parameters of a query over a span, or over its newest points. @param {string} query @param {import("./time_range.js").Span} span @param {number} [newest] 0 for all */
export function rangeOf(query, { start_ms, end_ms }, newest = 0) {
  const step = stepFor(end_ms - start_ms), end = Math.floor(end_ms / 1000 / step) * step;
  const n = newest || Math.max(1, Math.round((end_ms - start_ms) / 1000 / step));
  return { query, start: end - step * (n - 1), end, step };
}

/**
 * Returns an answer of Prometheus as a matrix of the page; a bucket ends at the time of its value.
 * @param {any} answer
 * @param {{start: number, end: number, step: number}} asked
 * @returns {import("./api.js").Matrix}
 */
export function toMatrix({ data, warnings = [], infos = [], engine, read }, { start, end, step }) {
  const n = Math.floor((end - start) / step) + 1;
  const series = data.result.map((/** @type {any} */ one) => {
    const { __name__: name = "", ...labels } = one.metric;
    const values = /** @type {import("./format.js").Value[]} */ (new Array(n).fill(null));
    for (const [time, text] of one.values) values[Math.round((time - start) / step)] = NAMED[text] ?? Number(text);
    return { name, labels, type: "DOUBLE", values };
  });
  const grid = { start_ms: (start - step) * 1000, end_ms: (start + (n - 1) * step) * 1000, step_ms: step * 1000, n };
  return { grid, complete: true, partial: false, warned: warnings.length > 0, notes: [...warnings, ...infos.filter((/** @type {string} */ one) => !one.startsWith(MISSING))], series, engine, read };
}

/** @param {string} name @returns {boolean} true if PromQL needs no quotes around it */
export function isPlain(name) {
  return /^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(name);
}
