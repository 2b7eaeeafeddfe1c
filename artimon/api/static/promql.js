// PromQL in the page: the query that is sent for a range, and its answer in the form of the page.

/** @type {Record<string, {range_s: number, step_s: number}>} length and step of each range */
export const WINDOWS = {
  "15m": { range_s: 900, step_s: 60 },
  "1h": { range_s: 3_600, step_s: 60 },
  "3h": { range_s: 10_800, step_s: 60 },
  "12h": { range_s: 43_200, step_s: 300 },
  "3d": { range_s: 259_200, step_s: 1_200 },
};
export const ROUTE = "v1/query_range";
const NAMED = /** @type {Record<string, string>} */ ({ "+Inf": "Infinity", "-Inf": "-Infinity", NaN: "NaN" });

/**
 * Returns the parameters of a query over a range that ends now.
 * @param {string} query
 * @param {string} range such as "1h"
 * @param {number} now_ms
 */
export function rangeOf(query, range, now_ms) {
  const { range_s, step_s } = WINDOWS[range];
  const end = Math.floor(now_ms / 1000 / step_s) * step_s;
  return { query, start: end - range_s + step_s, end, step: step_s };
}

/**
 * Returns an answer of Prometheus as a matrix of the page; a bucket ends at the time of its value.
 * @param {any} answer
 * @param {{start: number, end: number, step: number}} asked
 * @returns {import("./api.js").Matrix}
 */
export function toMatrix({ data, warnings = [], infos = [] }, { start, end, step }) {
  const n = Math.floor((end - start) / step) + 1;
  const series = data.result.map((/** @type {any} */ one) => {
    const { __name__: name = "", ...labels } = one.metric;
    const values = /** @type {import("./format.js").Value[]} */ (new Array(n).fill(null));
    for (const [time, text] of one.values) values[Math.round((time - start) / step)] = NAMED[text] ?? Number(text);
    return { name, labels, type: "DOUBLE", values };
  });
  const grid = { start_ms: (start - step) * 1000, end_ms: (start + (n - 1) * step) * 1000, step_ms: step * 1000, n };
  return { grid, complete: true, partial: false, notes: [...warnings, ...infos], series };
}

/** @param {string} name @returns {boolean} true if PromQL needs no quotes around it */
export function isPlain(name) {
  return /^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(name);
}
