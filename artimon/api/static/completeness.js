// Completeness of the data behind an answer: the share of the expected points that are there, and the hosts that are silent.

import { ask } from "./api.js";
import { byId, el, fill, mark } from "./dom.js";
import { questionOf } from "./question.js";

/** Interval at which a query is measured again. */
const AGAIN_MS = 60_000;
const WHOLE = 0.999;
/** Longest range whose completeness is measured: that of memory. */
const MEASURED_MS = 259_200_000;

/** True if memory holds the span to its end. @param {import("./time_range.js").Span} span */
export const isRecent = (span) => span.live && span.end_ms - span.start_ms <= MEASURED_MS;

/**
 * Returns the parameters that measure a query over a span; null for a span that ends in the past, or is longer than memory.
 * @param {string} text @param {string} lang @param {import("./time_range.js").Span} span
 * @returns {Record<string, string|number>|null}
 */
export function measureOf(text, lang, span) {
  if (!isRecent(span)) return null;
  const range_ms = span.end_ms - span.start_ms;
  return { engine: "memory", ...(lang === "promql" ? { q: text, lang, range_ms } : { q: questionOf(text, lang, span).q }) };
}

/** True if hardly anything is missing. @param {{series: number, share: number, silent_hosts: number}} found */
export const isWhole = (found) => !found.series || (found.share >= WHOLE && !found.silent_hosts);

/** Line below the answer of a query. */
export class CompletenessLine {
  constructor() {
    this.key = "";
    this.asked_ms = 0;
  }

  /** Asks for a new query, and again once a minute. @param {Record<string, string|number>|null} measure as of `measureOf` */
  async show(measure) {
    const key = measure ? JSON.stringify(measure) : "";
    if (key === this.key && Date.now() - this.asked_ms < AGAIN_MS) return;
    if (key !== this.key) fill(byId("completeness"), []);
    this.key = key;
    this.asked_ms = Date.now();
    if (!measure) return;
    try {
      const found = await ask("completeness", measure);
      if (key !== this.key) return;
      const state = isWhole(found) ? "good" : "warn";
      fill(byId("completeness"), found.series ? [mark(state), el("span", { text: found.text, title: listed(found) })] : []);
    } catch {
      fill(byId("completeness"), []); // the answer has its own error
    }
  }
}

/** @param {{silent: {host: string, state: string}[]}} found @returns {string} the silent hosts */
export function listed({ silent }) {
  return silent.map((one) => (one.state ? `${one.host} (${one.state})` : one.host)).join(", ");
}
