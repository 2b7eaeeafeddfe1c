// Values of dashboards without any element: units, thresholds, variables in texts, questions and their rows. Pure but for the requests.

import { ask } from "./api.js";
import { isWhole, measureOf } from "./completeness.js";
import { compact } from "./format.js";
import { isOrigin, originText } from "./question.js";
import { legendText, statistics, united } from "./series.js";
import { stepFor } from "./time_range.js";

/** Requests at a time. */
const CONCURRENT = 6;
/** Age in seconds that answers may have which several users share; the API renews those that are in use. */
export const SHARED_S = 120;
/** Series of a query up to which its completeness is measured. */
const MEASURED_MOST = 10_000;
const REFERENCE = /\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))/g;
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @typedef {{values: string[], all: boolean, multi: boolean, pattern?: string}} Chosen values of a variable; `all`: every one, which `pattern` matches */

/** @param {number} value @param {string} unit one of the units of docs/dashboards.md */
export function unitText(value, unit) {
  if (!Number.isFinite(value)) return compact(value);
  if (unit === "bytes" || unit === "bytes/s") {
    const power = Math.min(BINARY.length - 1, Math.max(0, Math.floor(Math.log2(Math.abs(value) || 1) / 10)));
    return `${compact(value / 1024 ** power, 3)} ${BINARY[power]}${unit === "bytes/s" ? "/s" : ""}`;
  }
  if (unit === "bits/s") return `${compact(value, 3)}bit/s`;
  if (unit === "percent") return `${compact(value, 3)} %`;
  if (unit === "ratio") return `${compact(value * 100, 3)} %`;
  if (unit === "/s") return `${compact(value, 3)}/s`;
  if (unit === "s" || unit === "ms") return span(unit === "s" ? value : value / 1000);
  return compact(value, 4);
}

/** @param {number} s */
function span(s) {
  const size = Math.abs(s);
  const [divisor, word] = /** @type {[number, string]} */ (
    size === 0 ? [1, "s"] : size < 1e-3 ? [1e-6, "µs"] : size < 1 ? [1e-3, "ms"] : size < 120 ? [1, "s"] : size < 7200 ? [60, "min"] : size < 172_800 ? [3600, "h"] : [86_400, "d"]
  );
  return `${compact(s / divisor, 3)} ${word}`;
}

/** Returns text and state of a value by the names and thresholds of a panel. @param {any} panel @param {number} value */
export function judged(panel, value) {
  const named = panel.names.find((/** @type {any} */ one) => one.value === value);
  const met = panel.thresholds.findLast((/** @type {any} */ one) => (one.above !== null ? value > one.above : value < one.below));
  return { text: named?.text ?? unitText(value, panel.unit), state: named?.state ?? met?.state ?? "" };
}

/** Returns the value of a row over the range; null if there is none. @param {import("./series.js").Row} row @param {string} how */
export function reduced(row, how) {
  if (how === "sum") {
    const numbers = (row.numbers ?? []).filter((one) => one !== null);
    return numbers.length ? numbers.reduce((a, b) => a + b, 0) : null;
  }
  return statistics(row)[/** @type {"last"} */ (how)];
}

/** @param {string} value @returns {string} a regular expression of just this text */
export const literal = (value) => value.replace(/[.+*?()[\]{}|$^\\]/g, (one) => (one === "^" || one === "\\" ? `\\${one}` : `[${one}]`));

/**
 * Returns a query with its variables filled in: quoted for a text in a selector, several values as a regular expression.
 * @param {string} text @param {string} lang @param {Record<string, Chosen>} chosen
 */
export function filled(text, lang, chosen) {
  return text.replace(REFERENCE, (whole, braced, plain) => {
    const found = chosen[braced ?? plain];
    if (!found) return whole;
    const value = found.all ? (found.pattern ?? ".*") : found.multi ? found.values.map(literal).join("|") : (found.values[0] ?? "");
    const quoted = value.replace(/["\\]/g, "\\$&").replace(/\n/g, "\\n");
    return lang === "artimon" ? quoted.replace(/['"\\]/g, "\\$&") : quoted;
  });
}

/** Returns a text with variables as people read them, or encoded for an address. @param {string} text @param {Record<string, Chosen>} chosen @param {boolean} [encoded] */
export function readable(text, chosen, encoded = false) {
  return text.replace(REFERENCE, (whole, braced, plain) => {
    const found = chosen[braced ?? plain];
    if (!found) return whole;
    const value = found.all ? (encoded ? "" : "all") : found.values.join(", ");
    return encoded ? encodeURIComponent(value) : value;
  });
}

/** Returns variables that every dashboard has. @param {import("./time_range.js").Span} span */
export function builtIn({ start_ms, end_ms }) {
  const range_s = Math.round((end_ms - start_ms) / 1000), step_s = stepFor(end_ms - start_ms);
  const one = (/** @type {number} */ s) => ({ values: [`${s}s`], all: false, multi: false });
  return { __interval: one(step_s), __rate_interval: one(Math.max(4 * step_s, 300)), __range: one(range_s) };
}

/** Questions of one round: equal ones are asked once, at most CONCURRENT at a time. */
export class Round {
  /** @param {AbortSignal} signal @param {import("./time_range.js").Span} span @param {import("./increments.js").Increments} increments those of earlier rounds */
  constructor(signal, span, increments) {
    this.signal = signal;
    this.span = span;
    this.increments = increments;
    /** @type {Map<string, Promise<any>>} */ this.asked = new Map();
    /** @type {(() => void)[]} */ this.waiting = [];
    this.running = 0;
  }

  /** @param {string} query @param {string} lang @returns {Promise<import("./api.js").Matrix>} */
  matrix(query, lang) {
    const key = `${lang} ${query}`;
    const found = this.asked.get(key) ?? this._queued(() => this.increments.answer(query, lang, this.span, this.signal, SHARED_S));
    this.asked.set(key, found);
    return found;
  }

  /**
   * Measures the completeness of a query; null if it is not measured.
   * @param {string} query @param {string} lang @returns {Promise<any>}
   */
  completeness(query, lang) {
    const measure = measureOf(query, lang, this.span);
    if (!measure) return Promise.resolve(null);
    const key = `completeness ${lang} ${query}`;
    const found = this.asked.get(key) ?? this._queued(() => ask("completeness", { ...measure, limit: MEASURED_MOST }, this.signal, undefined, SHARED_S));
    this.asked.set(key, found);
    return found;
  }

  /** @param {() => Promise<any>} work */
  async _queued(work) {
    if (this.running < CONCURRENT) this.running += 1;
    else await new Promise((go) => this.waiting.push(() => go(null)));
    try {
      return await work();
    } finally {
      const next = this.waiting.shift(); // it takes over this place
      if (next) next();
      else this.running -= 1;
    }
  }
}

/**
 * Asks the queries of a panel. All series get one grid.
 * @param {Round} round @param {any} panel @param {Record<string, Chosen>} chosen
 */
export async function answers(round, panel, chosen) {
  const every = { ...builtIn(round.span), ...chosen };
  const asked = panel.queries.map((/** @type {any} */ one) => round.matrix(filled(one.q, one.lang, every), one.lang));
  const settled = await Promise.allSettled(/** @type {Promise<import("./api.js").Matrix>[]} */ (asked));
  const failed = settled.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  const real = failed.find((error) => !selectsNothing(error));
  if (real || failed.length === settled.length) throw real ?? failed[0];
  const found = settled.flatMap((one, i) => (one.status === "fulfilled" ? [{ ...one.value, i }] : []));
  const format = (/** @type {number} */ value) => unitText(value, panel.unit);
  const joined = united(found.map((matrix) => ({ matrix, name: String(matrix.i + 1) })), panel.kind === "chart" ? undefined : null);
  const of = found.flatMap((matrix) => matrix.series.map(() => matrix.i));
  const rows = joined.rows.map((row, at) => ({ ...row, format, short: legendText(panel.queries[of[at]].legend, row) || row.short || panel.title || "value" }));
  const notes = [...new Set(found.flatMap((matrix) => matrix.notes))].filter((note) => !isOrigin(note));
  return { rows, grid: joined.grid, notes, origin: originText(found) };
}

/**
 * Returns what is missing behind a panel: the queries, as sent, with the completeness of those that lack data.
 * @param {Round} round @param {any} panel @param {Record<string, Chosen>} chosen
 */
export async function lacks(round, panel, chosen) {
  const every = { ...builtIn(round.span), ...chosen };
  const asked = panel.queries.map((/** @type {any} */ { q, lang }) => ({ q: filled(q, lang, every), lang }));
  const found = await Promise.allSettled(asked.map((/** @type {any} */ one) => round.completeness(one.q, one.lang)));
  return found.flatMap((one, i) => (one.status === "fulfilled" && one.value && !isWhole(one.value) ? [{ ...asked[i], found: one.value }] : []));
}

/** True for the refusal of a query whose variables nobody sends. @param {any} error */
export const selectsNothing = (error) => / selects nothing\b/.test(String(error?.message));
