// Questions about a range, for every page: the request of a query in either language, and its answer as a matrix.

import { ask, HARD_DEADLINE_MS, QUERY_DEADLINE_MS } from "./api.js";
import { scan, withRange } from "./language.js";
import { rangeOf, ROUTE, toMatrix } from "./promql.js";
import { durationText, evaluatedAt } from "./time_range.js";

/**
 * @typedef {object} Question
 * @property {string} text as written
 * @property {string} q as sent
 * @property {number} shift characters of `q` before `text`
 * @property {string} route
 * @property {Record<string, string|number>} parameters
 * @property {ReturnType<typeof rangeOf>|null} range of PromQL
 */

/**
 * Returns the question of a query over a span. A query of Artimon that names its own time keeps it.
 * @param {string} text @param {string} lang @param {import("./time_range.js").Span} span
 * @param {number} [newest] number of newest points, 0 for all
 * @returns {Question}
 */
export function questionOf(text, lang, span, newest = 0) {
  if (lang === "promql") {
    const range = rangeOf(text, span, newest);
    return { text, q: text, shift: 0, route: ROUTE, parameters: range, range };
  }
  const { q, shift } = withRange(text, durationText(span.end_ms - span.start_ms));
  const at = span.live ? {} : { time_ms: scan(text).timed ? span.now_ms : evaluatedAt(span) };
  return { text, q, shift, route: "query", parameters: { q, ...at, ...(newest ? { newest } : {}) }, range: null };
}

/**
 * Asks a question. `hard`: within the hard limits instead of the soft ones. `age_s`: age that the answer may have, if
 * others have asked the same.
 * @param {Question} question @param {AbortSignal} signal @param {boolean} [hard] @param {number} [age_s]
 * @returns {Promise<import("./api.js").Matrix>}
 */
export async function answerOf({ route, parameters, range }, signal, hard = false, age_s = 0) {
  const found = await (hard ? ask(route, { ...parameters, limits: "hard" }, signal, HARD_DEADLINE_MS) : ask(route, parameters, signal, QUERY_DEADLINE_MS, age_s));
  return range ? toMatrix(found, range) : found;
}

/**
 * Returns where answers come from: the engines, and what the history has read.
 * @param {import("./api.js").Matrix[]} matrices
 */
export function originText(matrices) {
  const engines = [...new Set(matrices.flatMap((one) => one.engine?.split(" and ") ?? []))].sort().reverse();
  const read = new Set(matrices.flatMap((one) => [...one.notes, ...(one.read ?? [])]).filter(isOrigin));
  return engines.length ? [`Read from ${engines.join(" and ")}`, ...read].join(" · ") : "";
}

/** True for a note that says what the history has read. @param {string} note */
export const isOrigin = (note) => note.startsWith("history: ");
