// Answers that grow: a refresh asks for the newest points of a query and joins them with those that the page holds.
// The whole range is asked first, after a change or an error, once in each slot of WHOLE_MS, and if both parts do not fit.

import { stepOf } from "./api.js";
import { seriesText } from "./format.js";
import { scan } from "./language.js";
import { answerOf, questionOf } from "./question.js";

/** Points that are asked again with the new ones, because late samples may have changed them. */
export const OVERLAP = 5;
/** Points of the smallest increment. Larger ones are twice as long, so that many users ask equal questions. */
const LEAST = 8;
/** Interval of whole answers, in which corrections before the overlap appear. Each query has its own begin of a slot, the same for all users. */
export const WHOLE_MS = 600_000;
/** Increments in a row that do not fit, after which the rest of the slot asks for the whole range. */
const MISFITS_MOST = 2;
/** Values of all answers that are held; the ones that were not asked for the longest time give way. */
const VALUES_MOST = 2_000_000;
/** Relative rounding of values that are equal. */
const ROUNDING = 1e-9;
/** Answers of the API to a query that it refuses for what it selects. */
const REFUSED = [400, 404, 422];
/** Calls of PromQL whose value depends on the whole range. */
const OF_RANGE = /\b(start|end|range)\s*\(\s*\)/;

/** @typedef {import("./api.js").Matrix} Matrix */
/** @typedef {{matrix: Matrix, notes: string[], slot: number, misfits: number}} Held `notes`: those of the last whole answer */

export class Increments {
  constructor() {
    /** By query, the one that was asked last at the end. @type {Map<string, Held>} */ this.held = new Map();
  }

  /** Forgets all answers, because something was chosen. */
  clear() {
    this.held.clear();
  }

  /**
   * Returns the answer of a query over a span, asking only for what is new if it can.
   * @param {string} query @param {string} lang @param {import("./time_range.js").Span} span @param {AbortSignal} signal
   * @param {number} age_s as of `answerOf`
   * @returns {Promise<Matrix>}
   */
  async answer(query, lang, span, signal, age_s) {
    const key = `${lang} ${span.end_ms - span.start_ms} ${query}`, slot = slotOf(key, span.now_ms);
    const known = this.held.get(key), held = known?.slot === slot ? known : null;
    const newest = held ? newestOf(held, span) : 0;
    try {
      const found = held && newest ? await this._increment(held, newest, { query, lang, span, signal, age_s }) : null;
      if (found) return this._keep(key, found);
      const matrix = await answerOf(questionOf(query, lang, span), signal, false, age_s);
      const misfits = held ? held.misfits + (newest ? 1 : 0) : 0;
      return isKept(query, lang, span) ? this._keep(key, { matrix, notes: matrix.notes, slot, misfits }) : matrix;
    } catch (error) {
      if (!signal.aborted) this.held.delete(key);
      throw error;
    }
  }

  /**
   * Asks for the newest points and joins them; null if both do not fit.
   * @param {Held} held @param {number} newest @param {{query: string, lang: string, span: import("./time_range.js").Span, signal: AbortSignal, age_s: number}} asked
   * @returns {Promise<Held|null>}
   */
  async _increment(held, newest, { query, lang, span, signal, age_s }) {
    let found;
    try {
      found = await answerOf(questionOf(query, lang, span, newest), signal, false, age_s);
    } catch (error) {
      if (!REFUSED.includes(/** @type {import("./api.js").ApiError} */ (error).status)) throw error;
      return null; // series that the range has may lack in its newest part
    }
    if (found.grid.n > newest) return { ...held, matrix: found, notes: found.notes, misfits: MISFITS_MOST }; // its values depend on the whole range
    const matrix = joined(held.matrix, found);
    return matrix && { ...held, matrix: { ...matrix, notes: united(held.notes, found.notes) }, misfits: 0 };
  }

  /** Keeps an answer and returns its matrix; a part of the data is shown, but not built upon. @param {string} key @param {Held} held */
  _keep(key, held) {
    const { matrix } = held;
    this.held.delete(key);
    if (!matrix.partial && !matrix.warned && !matrix.grid.ends_ms) this.held.set(key, held);
    let values = 0;
    for (const [old, one] of [...this.held].reverse()) {
      values += one.matrix.series.length * one.matrix.grid.n;
      if (values > VALUES_MOST) this.held.delete(old);
    }
    return matrix;
  }
}

/** Returns the number of the slot of WHOLE_MS that a time lies in. @param {string} key @param {number} ms */
function slotOf(key, ms) {
  let hash = 0x811c9dc5; // FNV-1a
  for (let at = 0; at < key.length; at += 1) hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
  return Math.floor((ms + ((hash >>> 0) % WHOLE_MS)) / WHOLE_MS);
}

/** Returns the number of newest points to ask for; 0: the whole range. @param {Held} held @param {import("./time_range.js").Span} span */
function newestOf({ matrix: { grid }, misfits }, { end_ms }) {
  if (misfits >= MISFITS_MOST) return 0;
  const wanted = OVERLAP + Math.max(0, Math.floor((end_ms - grid.end_ms) / stepOf(grid)));
  const newest = LEAST * 2 ** Math.max(0, Math.ceil(Math.log2(wanted / LEAST)));
  return 2 * newest <= grid.n ? newest : 0;
}

/** True for a query over a range that moves with the time, which it does not name itself. @param {string} query @param {string} lang @param {import("./time_range.js").Span} span */
function isKept(query, lang, span) {
  return span.live && !(lang === "promql" ? OF_RANGE.test(query) : scan(query).timed);
}

/**
 * Joins an answer with its newest points, which may be evaluated later. Null if there is a gap between, or they differ where
 * the newer one begins: a correction may reach further back than the overlap, or a series has points that are not held.
 * @param {Matrix} held @param {Matrix} found
 * @returns {Matrix|null}
 */
export function joined(held, found) {
  const step_ms = stepOf(held.grid), { n } = held.grid;
  const later = (found.grid.end_ms - held.grid.end_ms) / step_ms, kept = n - (found.grid.n - later);
  if (found.grid.ends_ms || stepOf(found.grid) !== step_ms || !Number.isInteger(later) || kept < 0 || kept >= n) return null;
  if (later < 0) return held; // an answer of others from before
  const before = byKey(held), after = byKey(found);
  if (!before || !after) return null;
  const none = new Array(found.grid.n).fill(null), series = [];
  for (const key of orderOf([...before.keys()], [...after.keys()])) {
    const old = before.get(key), fresh = after.get(key);
    if (old && fresh && old.type !== fresh.type) return null;
    if (!isEqual(old?.values[kept] ?? null, fresh?.values[0] ?? null)) return null;
    const values = [...(old?.values.slice(later, kept) ?? new Array(kept - later).fill(null)), ...(fresh?.values ?? none)];
    if (values.some((value) => value !== null)) series.push({ .../** @type {import("./api.js").Series} */ (fresh ?? old), values });
  }
  const grid = { start_ms: found.grid.end_ms - n * step_ms, end_ms: found.grid.end_ms, step_ms, n };
  return { ...held, grid, series, complete: held.complete && found.complete, partial: found.partial, warned: found.warned };
}

/** Returns the series by their texts; null if two have the same. @param {Matrix} matrix */
function byKey({ series }) {
  const found = new Map(series.map((one) => [seriesText(one.name, one.labels), one]));
  return found.size === series.length ? found : null;
}

/** Returns the texts of both, new ones after the one that precedes them. @param {string[]} old @param {string[]} fresh */
function orderOf(old, fresh) {
  const known = new Set(old), followers = /** @type {Map<string, string[]>} */ (new Map());
  let last = "";
  for (const key of fresh) {
    if (known.has(key)) last = key;
    else followers.set(last, [...(followers.get(last) ?? []), key]);
  }
  return ["", ...old].flatMap((key) => [...(key ? [key] : []), ...(followers.get(key) ?? [])]);
}

/** True if two values are equal but for rounding. @param {import("./format.js").Value} a @param {import("./format.js").Value} b */
function isEqual(a, b) {
  if (typeof a !== "number" || typeof b !== "number") return a === b;
  return Math.abs(a - b) <= ROUNDING * Math.max(Math.abs(a), Math.abs(b));
}

/** Returns the notes of a whole answer, and those of its newest part that do not only differ in numbers. @param {string[]} whole @param {string[]} newest */
function united(whole, newest) {
  const shape = (/** @type {string} */ note) => note.replace(/\d[\d,.:]*/g, "0"), known = new Set(whole.map(shape));
  return [...whole, ...newest.filter((note) => !known.has(shape(note)))];
}
