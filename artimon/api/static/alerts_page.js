// Page of the alerts: groups as they are sent, silences, acknowledgements, history and rules.

import { showAction } from "./alert_actions.js";
import { trialOf } from "./alert_replay.js";
import { ask, sendJson } from "./api.js";
import { announce, byId, el, fill, later, mark } from "./dom.js";
import { duration, moment, plural } from "./format.js";
import { buildFrame } from "./frame.js";
import { Feed, sayAge, Scheduler } from "./scheduler.js";

const LISTED = 300, HISTORY = 100;
const WORDS = { ago: duration };

/** @typedef {{fingerprint: string, labels: Record<string, string>, annotations: Record<string, string>, startsAt: string, status: {state: string, silencedBy: string[], inhibitedBy: string[]}, acknowledged: {author: string, comment: string}|null, generatorURL: string}} Alert */
/** @typedef {{labels: Record<string, string>, receiver: {name: string}, alerts: Alert[]}} Group */

const asked = new URLSearchParams(location.search);
const state = { filter: asked.get("filter") ?? "", state: asked.get("state") ?? "", of: asked.get("of") ?? "" };
const scheduler = new Scheduler();
let may_change = false, needs_author = false;

/**
 * @template T
 * @param {() => Promise<T>} load @param {(data: T) => void} show @param {string} age id of the line with the age
 */
function feed(load, show, age) {
  const made = new Feed({
    load, show: (data) => { byId("problem").textContent = ""; show(data); },
    fail: (error) => { byId("problem").textContent = error.message; },
    age: (one) => { if (age) sayAge(byId(age), one, WORDS); },
  });
  scheduler.add(made);
  return made;
}

const groups = feed(() => ask("alerts/groups", state.filter ? { filter: state.filter } : {}), (data) => showGroups(data.groups), "groups-age");
const silences = feed(() => ask("alerts/silences", {}), (data) => showSilences(data.silences), "silences-age");
const rules = feed(() => ask("alerts", {}), showRules, "rules-age");
const history = feed(() => ask("alerts/history", state.of ? { fingerprint: state.of, limit: HISTORY } : { limit: HISTORY }), (data) => showHistory(data.history), "");

/** @param {Group[]} found */
function showGroups(found) {
  const seen = found.map((group) => ({ ...group, alerts: group.alerts.filter(isWanted) })).filter((group) => group.alerts.length);
  const count = new Set(seen.flatMap((group) => group.alerts.map((one) => one.fingerprint))).size;
  document.title = count ? `(${count}) Alerts – Artimon` : "Alerts – Artimon";
  if (!seen.length) return fill(byId("group-list"), [el("p", { class: "panel-line" }, mark("good"), el("span", { text: found.length || state.filter ? "No alert fits." : "Nothing fires." }))]);
  fill(byId("group-list"), seen.slice(0, LISTED).map(groupPart));
}

/** @param {Alert} one */
function isWanted(one) {
  if (state.state === "acknowledged") return Boolean(one.acknowledged);
  return !state.state || one.status.state === state.state;
}

/** @param {Group} group */
function groupPart(group) {
  const labels = Object.entries(group.labels).map(labelPart);
  const title = el("h3", {}, el("span", { text: `${plural(group.alerts.length, "alert")} to ${group.receiver.name}` }), ...labels);
  return el("section", { class: "group" }, title, el("ul", {}, ...group.alerts.slice(0, LISTED).map(alertPart)));
}

/** @param {[string, string]} pair */
function labelPart([name, value]) {
  return el("span", { class: "label", text: `${name}=${value}` });
}

/** @param {Alert} one */
function alertPart(one) {
  const { alertname = "", ...labels } = one.labels;
  const since_ms = Date.parse(one.startsAt), held = one.acknowledged || one.status.state !== "active";
  const texts = [one.annotations.summary, one.annotations.description, ...handling(one)].filter(Boolean);
  const link = one.annotations.runbook ?? one.annotations.runbook_url ?? "";
  return el("li", { class: "alert firing" }, mark(held ? "warn" : "bad"),
    el("div", { class: "alert-main" }, el("strong", { text: alertname }), ...texts.map((text) => el("p", { text })),
      el("div", { class: "labels" }, ...Object.entries(labels).map(labelPart)), actions(one, /^https?:\/\//.test(link) ? link : "")),
    el("div", { class: "alert-when" }, el("span", { class: "faint", text: `${moment(since_ms)} (${duration(Date.now() - since_ms)})` })));
}

/** @param {Alert} one @returns {string[]} why no messages are sent about it */
function handling(one) {
  return [
    one.status.silencedBy.length ? `Silenced by ${one.status.silencedBy.join(", ")}` : "",
    one.status.inhibitedBy.length ? "Muted by another alert" : "",
    one.acknowledged ? `Acknowledged by ${one.acknowledged.author}: ${one.acknowledged.comment}` : "",
  ].filter(Boolean);
}

/** @param {Alert} one @param {string} runbook */
function actions(one, runbook) {
  const key = (/** @type {string} */ what) => `${what} ${one.fingerprint}`;
  const button = (/** @type {string} */ text, /** @type {() => void} */ act) => el("button", { type: "button", text, "data-key": key(text), onclick: act });
  const changes = !may_change ? [] : [
    one.acknowledged ? button("Withdraw acknowledgement", () => void change("DELETE", "alerts/acknowledgements", { alerts: [one.fingerprint] }, "Withdrawn"))
      : button("Acknowledge", () => act("acknowledge", one)),
    button("Silence", () => act("silence", one)),
  ];
  const more = [button("History", () => showHistoryOf(one.fingerprint)), runbook ? el("a", { class: "button", href: runbook, rel: "noreferrer", text: "Runbook" }) : null];
  return el("div", { class: "alert-actions" }, ...changes, ...more);
}

/** @param {"silence"|"acknowledge"} what @param {Alert|null} one */
function act(what, one) {
  const matchers = one ? Object.entries(one.labels).sort().map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ") : state.filter;
  showAction({ what, matchers, alerts: one ? [one.fingerprint] : [], needs_author, done: (text) => { announce(text); refresh(); } });
}

/** @param {string} method @param {string} route @param {object} body @param {string} done */
async function change(method, route, body, done) {
  try {
    await sendJson(method, route, body);
    announce(done);
    refresh();
  } catch (problem) {
    byId("problem").textContent = /** @type {Error} */ (problem).message;
  }
}

/** @param {{id: string, status: {state: string}, comment: string, createdBy: string, startsAt: string, endsAt: string, matchers: {name: string, value: string, isRegex: boolean, isEqual: boolean}[]}[]} found */
function showSilences(found) {
  const live = found.filter((one) => one.status.state !== "expired");
  if (!live.length) return fill(byId("silence-list"), [el("p", { class: "faint", text: "No silence is in force." })]);
  fill(byId("silence-list"), [el("ul", {}, ...live.slice(0, LISTED).map((one) => {
    const matchers = one.matchers.map((it) => `${it.name}${it.isEqual ? (it.isRegex ? "=~" : "=") : it.isRegex ? "!~" : "!="}${JSON.stringify(it.value)}`).join(", ");
    const end = may_change ? el("button", { type: "button", text: "Expire", "data-key": `expire ${one.id}`, "aria-label": `Expire the silence ${matchers}`, onclick: () => void change("DELETE", `alerts/silences/${encodeURIComponent(one.id)}`, {}, "Expired") }) : null;
    return el("li", { class: "silence" }, el("div", { class: "mono", text: matchers }), el("p", { text: one.comment }),
      el("div", { class: "silence-foot" }, el("span", { class: "faint", text: `${one.createdBy}, ${one.status.state}, until ${moment(Date.parse(one.endsAt))}` }), end));
  }))]);
}

/** @param {{rules: {name: string, file: string, line: number, expr: string, lang?: string, threshold: string|null, state: string, error: string, completeness?: string, duration_ms: number, for_ms: number}[], engines: {id: string, time_ms: number}[], problem: string}} found */
function showRules(found) {
  const last_ms = Math.max(0, ...(found.engines ?? []).map((one) => one.time_ms));
  const states = /** @type {Record<string, "good"|"warn"|"bad">} */ ({ firing: "bad", pending: "warn", error: "bad" });
  const when = last_ms ? `Minute evaluated last: ${moment(last_ms)}, next: ${moment(last_ms + 60_000)}` : found.problem;
  fill(byId("rule-list"), [el("p", { class: "faint", text: when }), el("ul", { class: "rules" }, ...(found.rules ?? []).slice(0, LISTED).map((rule) => el("li", {},
    mark(states[rule.state] ?? "good"),
    el("div", {}, el("strong", { text: rule.name }), el("span", { class: "faint", text: ` ${rule.state}, took ${rule.duration_ms < 1 ? "below 1 ms" : duration(rule.duration_ms)}, for ${duration(rule.for_ms)}, ${rule.file}:${rule.line}` }),
      el("div", { class: "mono" }, el("a", { href: `./?${new URLSearchParams({ q: rule.expr, lang: rule.lang ?? "artimon" })}`, text: rule.expr }), rule.threshold ? ` ${rule.threshold}` : ""),
      rule.error ? el("p", { class: "problem", text: rule.error }) : null, rule.completeness ? el("p", { class: "lacking" }, mark("warn"), ` ${rule.completeness}`) : null, ...(may_change ? trialOf(rule) : [])))))]);
}

/** @param {{time_ms: number, change: string, rule: string, labels: Record<string, string>, summary: string, reason: string}[]} entries */
function showHistory(entries) {
  byId("history-all").hidden = !state.of;
  if (!entries.length) return fill(byId("history-list"), [el("p", { class: "faint", text: "Nothing has fired." })]);
  fill(byId("history-list"), [el("ul", {}, ...entries.map((one) => el("li", { class: "entry" }, mark(one.change === "firing" ? "bad" : "good"),
    el("div", {}, el("strong", { text: one.rule }), ` ${one.change}${one.reason ? `: ${one.reason}` : ""}`, el("div", { class: "labels" }, ...Object.entries(one.labels).map(labelPart)), one.summary ? el("p", { text: one.summary }) : null),
    el("span", { class: "faint", text: moment(one.time_ms) }))))]);
}

/** @param {string} fingerprint "" for all alerts */
function showHistoryOf(fingerprint) {
  state.of = fingerprint;
  remember();
  void history.restart();
  byId("history").scrollIntoView({ block: "nearest" });
}

function remember() {
  const kept = Object.entries(state).filter(([, value]) => value);
  window.history.replaceState(null, "", kept.length ? `?${new URLSearchParams(kept)}` : location.pathname);
}

function refresh() {
  for (const one of scheduler.feeds) if (one.enabled) void one.restart();
}

async function learnWho() {
  const who = await ask("whoami", {}).catch(() => null);
  may_change = Boolean(who) && !who.restricted && (!who.login || who.level !== "viewer");
  needs_author = Boolean(who) && !who.login;
  byId("new-silence").hidden = !may_change;
  for (const one of [silences, history]) one.enabled = !who?.restricted; // they concern all series
  scheduler.tick();
}

function wire() {
  const filter = /** @type {HTMLInputElement} */ (byId("filter")), chosen = /** @type {HTMLSelectElement} */ (byId("state"));
  filter.value = state.filter;
  chosen.value = state.state;
  filter.addEventListener("input", later(() => { state.filter = filter.value.trim(); remember(); void groups.restart(); }, 400));
  chosen.addEventListener("change", () => { state.state = chosen.value; remember(); void groups.restart(); });
  byId("filter-form").addEventListener("submit", (event) => event.preventDefault());
  byId("new-silence").addEventListener("click", () => act("silence", null));
  byId("history-all").addEventListener("click", () => showHistoryOf(""));
  document.addEventListener("keydown", (event) => {
    const writes = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
    if (writes || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const keys = /** @type {Record<string, () => void>} */ ({ "/": () => filter.focus(), r: refresh, n: () => may_change && act("silence", null), "?": () => /** @type {HTMLDialogElement} */ (byId("help")).showModal() });
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}

buildFrame("alerts");
wire();
void learnWho();
