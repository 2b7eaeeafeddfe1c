// Alerts panel: firing, pending and resolved alerts, in this order; their rules and mails.

import { byId, el, fill, mark } from "./dom.js";
import { compact, duration, moment, plural } from "./format.js";

const LISTED = 100;
const NO_DATA = "no data";
const ORDER = ["firing", "pending", "resolved"];

/**
 * @typedef {{rule: string, labels: Record<string, string>, state: string, since_ms: number|null, fired_ms: number|null, resolved_ms: number|null, value: any, reason?: string, summary: string, silenced_by?: string[], inhibited_by?: string[], acknowledged?: {author: string, comment: string}|null}} Alert
 * @typedef {{name: string, file: string, line: number, expr: string, threshold: any, for_ms: number, state: string, error: string, completeness?: string, duration_ms: number, receivers: string[]}} Rule
 * @typedef {{id: string, time_ms: number, problems?: string[], mail?: {pending: number, sent: number, failed?: number, problem: string}}} Engine
 * @typedef {{engines: Engine[], rules: Rule[], alerts: Alert[], problems?: string[], truncated: number, problem: string}} Alerts
 */

/** @param {Alerts} found of /api/alerts @param {(text: string) => void} use puts a query in the box */
export function showAlerts(found, use) {
  const alerts = found.alerts ?? [], rules = found.rules ?? [], engines = found.engines ?? [];
  const firing = alerts.filter((one) => one.state === "firing").length;
  const chip = byId("firing-chip");
  chip.hidden = !firing;
  fill(chip, firing ? [mark("bad"), el("span", { text: `${firing} firing` })] : []);
  document.title = firing ? `(${firing}) Artimon` : "Artimon";
  const open = /** @type {HTMLDetailsElement|null} */ (byId("alerts-body").querySelector("details"))?.open ?? false;
  if (!engines.length) return fill(byId("alerts-body"), [el("p", { class: "panel-line idle" }, mark("idle"), el("span", { text: found.problem || "No alert engine runs." }))]);
  const parts = [...troubles(found), headline(alerts, firing, rules.length), list(alerts, rules, found.truncated, use)];
  fill(byId("alerts-body"), [...parts, ...(rules.length ? [ruleList(rules, engines, open, use)] : []), ...engines.map(mailLine)]);
}

/** @param {Alerts} found */
function troubles({ problem, problems, engines }) {
  const said = [problem, ...(problems ?? []), ...(engines ?? []).flatMap((engine) => engine.problems ?? [])];
  const texts = [...new Set(said.filter(Boolean))].slice(0, 20);
  return texts.length ? [el("ul", { class: "problems", "aria-label": "Problems of the rules" }, ...texts.map((text) => el("li", {}, mark("warn"), el("span", { text }))))] : [];
}

/** @param {Alert[]} alerts @param {number} firing @param {number} rules */
function headline(alerts, firing, rules) {
  const pending = alerts.filter((one) => one.state === "pending").length;
  const words = [firing ? `${firing} firing` : "Nothing fires", pending ? `${pending} pending` : "", plural(rules, "rule")];
  return el("p", { class: "panel-line" }, mark(firing ? "bad" : pending ? "warn" : "good"), el("span", { text: words.filter(Boolean).join(", ") }));
}

/** @param {Alert[]} alerts @param {Rule[]} rules @param {number} truncated @param {(text: string) => void} use */
function list(alerts, rules, truncated, use) {
  const rank = (/** @type {Alert} */ one) => (ORDER.indexOf(one.state) + ORDER.length + 1) % (ORDER.length + 1);
  const sorted = [...alerts].sort((a, b) => rank(a) - rank(b) || changed(b) - changed(a));
  const expressions = new Map(rules.map((rule) => [rule.name, rule.expr]));
  const items = sorted.slice(0, LISTED).map((one) => line(one, expressions.get(one.rule) ?? "", use));
  const left = sorted.length - items.length + (truncated || 0);
  if (left) items.push(el("li", { class: "faint", text: `${left} more` }));
  return el("ul", { class: "alerts scroll", "aria-label": "Alerts", tabindex: items.length ? "0" : null }, ...items);
}

/** @param {Alert} one @returns {number} start time of its state */
function changed(one) {
  return (one.state === "resolved" ? one.resolved_ms : one.state === "firing" ? one.fired_ms : one.since_ms) ?? 0;
}

/** @param {Alert} one @param {string} expr @param {(text: string) => void} use */
function line(one, expr, use) {
  const state = one.state === "firing" ? "bad" : one.state === "pending" ? "warn" : "good";
  const labels = Object.entries(one.labels ?? {}).map(([key, value]) => el("span", { class: "label", text: `${key}=${value}` }));
  const at = changed(one), when = at ? ` ${moment(at)} (${duration(Date.now() - at)})` : "";
  const name = expr
    ? el("button", { type: "button", class: "link strong", "data-key": `${one.rule} ${JSON.stringify(one.labels)}`, title: "Put its expression in the query", text: one.rule, onclick: () => use(expr) })
    : el("strong", { text: one.rule });
  const { value, summary, reason } = words(one);
  return el("li", { class: `alert ${one.state}` }, mark(state),
    el("div", { class: "alert-main" }, el("div", {}, name, value ? el("span", { class: "alert-value", text: ` ${value}` }) : null),
      summary ? el("p", { text: summary }) : null, reason ? el("p", { class: "faint", text: reason }) : null,
      ...handling(one).map((text) => el("p", { class: "faint", text })), el("div", { class: "labels" }, ...labels)),
    el("div", { class: "alert-when" }, el("strong", { text: one.state }), el("span", { class: "faint", text: when })));
}

/** @param {Alert} one @returns {string[]} why no messages are sent about it */
function handling({ silenced_by: silences, inhibited_by: sources, acknowledged }) {
  return [
    silences?.length ? `Silenced by ${silences.join(", ")}` : "",
    sources?.length ? "Muted by another alert" : "",
    acknowledged ? `Acknowledged by ${acknowledged.author}: ${acknowledged.comment}` : "",
  ].filter(Boolean);
}

/**
 * Returns value, summary and reason without repeating that there is no data.
 * @param {Alert} one
 * @returns {{value: string, summary: string, reason: string}}
 */
function words({ value, summary = "", reason = "" }) {
  if (value !== null && value !== undefined) return { value: typeof value === "number" ? compact(value) : String(value), summary, reason };
  const why = reason.startsWith(NO_DATA) ? reason : NO_DATA, other = reason.startsWith(NO_DATA) ? "" : reason;
  if (summary.includes(NO_DATA)) return { value: "", summary: summary.replace(NO_DATA, () => why), reason: other };
  return { value: why, summary, reason: other };
}

/** @param {Rule[]} rules @param {Engine[]} engines @param {boolean} open @param {(text: string) => void} use */
function ruleList(rules, engines, open, use) {
  const failed = rules.filter((rule) => rule.state === "error").length;
  const time_ms = Math.max(0, ...engines.map((engine) => engine.time_ms ?? 0));
  const evaluated = time_ms ? `, evaluated ${duration(Date.now() - time_ms)} ago` : "";
  const summary = el("summary", { "data-key": "rules", text: `${plural(rules.length, "rule")}${failed ? `, ${failed} with errors` : ""}${evaluated}` });
  const items = rules.slice(0, LISTED).map((rule) => ruleLine(rule, use));
  if (rules.length > LISTED) items.push(el("li", { class: "faint", text: `${rules.length - LISTED} more` }));
  return el("details", { open }, summary, el("ul", { class: "rules" }, ...items));
}

/** @param {Rule} rule @param {(text: string) => void} use */
function ruleLine(rule, use) {
  const states = /** @type {Record<string, "good"|"warn"|"bad">} */ ({ firing: "bad", pending: "warn", error: "bad" });
  return el("li", {}, mark(states[rule.state] ?? "good"),
    el("div", {}, el("strong", { text: rule.name }), el("span", { class: "faint", text: ` ${rule.state}, ${duration(rule.duration_ms)}, ${rule.file}:${rule.line}` }),
      el("div", {}, el("button", { type: "button", class: "link mono", "data-key": `rule ${rule.name}`, text: rule.expr, onclick: () => use(rule.expr) }), rule.threshold === null ? null : el("span", { class: "mono", text: ` ${rule.threshold}` })),
      rule.error ? el("p", { class: "problem", text: rule.error }) : null, rule.completeness ? el("p", { class: "lacking" }, mark("warn"), ` ${rule.completeness}`) : null));
}

/** @param {Engine} engine */
function mailLine({ mail }) {
  const pending = mail?.pending ?? 0, failed = mail?.failed ?? 0, problem = mail?.problem ?? "";
  const counts = [`${mail?.sent ?? 0} sent`, pending ? `${pending} waiting` : "", failed ? `${failed} given up` : ""];
  const text = `Mail: ${counts.filter(Boolean).join(", ")}${problem ? `: ${problem}` : ""}`;
  return el("p", { class: problem || failed ? "mail problem" : "mail faint", text });
}
