// Trial of a rule: its replay over the last 30 days, with the firings that it would have had.

import { send } from "./api.js";
import { announce, el, fill } from "./dom.js";
import { duration, moment, plural } from "./format.js";

const DAYS = 30;
/** Longest wait; the API ends a replay at its hard limit `query_s`. */
const DEADLINE_MS = 150_000;
const SHOWN_MOST = 100;

/** @typedef {{fired: number, total_ms: number, longest_ms: number, pages: number, evaluations: number, truncated: boolean, errors: {error: string, evaluations: number}[], firings: {labels: Record<string, string>, fired: string, resolved: string|null, duration_ms: number}[]}} Replayed */
/** @type {Map<string, {place: HTMLElement, abort: AbortController|null}>} open trials by rule; they outlive a refresh of the list */
const trials = new Map();

/** Returns the button of a rule and the place of its trial. @param {{name: string, expr: string, lang?: string}} rule @returns {HTMLElement[]} */
export function trialOf(rule) {
  const button = el("button", { type: "button", class: "plain small", "data-key": `try ${rule.name}`, "aria-label": `Try ${rule.name} on the last ${DAYS} days`, text: `Try on the last ${DAYS} days`, onclick: () => void tryRule(rule) });
  const { place } = trials.get(rule.name) ?? trials.set(rule.name, { place: el("div", { class: "trial", role: "status" }), abort: null }).get(rule.name) ?? {};
  return place ? [button, place] : [button];
}

/** @param {{name: string, expr: string, lang?: string}} rule */
async function tryRule(rule) {
  const trial = trials.get(rule.name);
  if (!trial || trial.abort) return;
  const { signal } = (trial.abort = new AbortController());
  const body = JSON.stringify({ rule: rule.name, from: `now-${DAYS}d` });
  fill(trial.place, [el("span", { text: "Replaying… " }), el("button", { type: "button", class: "plain small", "data-key": `cancel ${rule.name}`, text: "Cancel", onclick: () => trial.abort?.abort() })]);
  try {
    const found = await send("POST", "alerts/replay", {}, { body, headers: { "content-type": "application/json" } }, signal, DEADLINE_MS);
    fill(trial.place, report(rule, found));
    announce(`${rule.name}: ${summary(found.rule)}`);
  } catch (problem) {
    const text = signal.aborted ? "Cancelled." : /** @type {Error} */ (problem).message;
    fill(trial.place, [el("p", { class: signal.aborted ? "faint" : "problem", text })]);
  } finally {
    trial.abort = null;
  }
}

/** @param {Replayed} found */
function summary({ fired, total_ms, longest_ms, pages }) {
  return fired ? `fired ${plural(fired, "time")}, ${duration(total_ms)} in all, at most ${duration(longest_ms)}; ${plural(pages, "message")}` : "would not have fired";
}

/** @param {{name: string, expr: string, lang?: string}} rule @param {{from: string, to: string, rule: Replayed}} answer @returns {HTMLElement[]} */
function report(rule, { from, to, rule: found }) {
  const close = el("button", { type: "button", class: "plain small", "data-key": `close ${rule.name}`, "aria-label": `Close the trial of ${rule.name}`, text: "Close", onclick: () => trials.get(rule.name)?.place.replaceChildren() });
  const head = el("p", {}, el("strong", { text: summary(found) }), el("span", { class: "faint", text: ` ${moment(Date.parse(from))} – ${moment(Date.parse(to))}, ${plural(found.evaluations, "evaluation")} ` }), close);
  const errors = found.errors.slice(0, 5).map((one) => el("p", { class: "problem", text: `${plural(one.evaluations, "evaluation")} failed: ${one.error}` }));
  const lines = found.firings.slice(-SHOWN_MOST).reverse().map((one) => el("tr", {},
    el("td", {}, el("a", { href: `./?${around(rule, Date.parse(one.fired), one.duration_ms)}`, text: moment(Date.parse(one.fired)) })),
    el("td", { class: "number", text: one.resolved ? duration(one.duration_ms) : `${duration(one.duration_ms)}, fires` }),
    el("td", { text: Object.entries(one.labels).map(([name, value]) => `${name}=${value}`).join(" ") || "no labels" })));
  if (!lines.length) return [head, ...errors];
  const names = el("tr", {}, ...["Begin", "Length", "Labels"].map((text) => el("th", { scope: "col", text })));
  const more = found.truncated || found.firings.length > lines.length ? [el("p", { class: "faint", text: `The last ${lines.length} are listed.` })] : [];
  return [head, ...errors, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Firings of ${rule.name}` }, el("table", { class: "grid" }, el("thead", {}, names), el("tbody", {}, ...lines))), ...more];
}

/** Returns the address of a firing with as much before and after it. @param {{expr: string, lang?: string}} rule @param {number} fired_ms @param {number} length_ms */
function around({ expr, lang = "artimon" }, fired_ms, length_ms) {
  const side = Math.max(1_800_000, length_ms), text = (/** @type {number} */ ms) => new Date(ms).toISOString().slice(0, 19);
  return new URLSearchParams({ q: expr, lang, range: `${text(fired_ms - side)}Z to ${text(fired_ms + length_ms + side)}Z` }).toString();
}
