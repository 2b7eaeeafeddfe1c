// Page of the fleet: every process of Artimon with its state, version, lag and last report; who is missing.

import { ask } from "./api.js";
import { byId, el, fill, later, mark } from "./dom.js";
import { duration, memory, moment, plural } from "./format.js";
import { buildFrame } from "./frame.js";
import { AddressState, cell, listenKeys, pager, startFeed, stateLink, table } from "./list_page.js";

const LISTED = 100, PROBLEMS_MOST = 100;
const MARKS = /** @type {Record<string, "good"|"warn"|"bad"|"idle">} */ ({ up: "good", failing: "bad", missing: "bad", silent: "idle" });
const COLUMNS = ["Process", "Host", "State", "Version", { text: "Lag", number: true }, { text: "Memory", number: true }, { text: "Up", number: true }, { text: "Last report", number: true }];

/** @typedef {{role: string, host: string, instance: string, version: string, state: string, problem: string, seen_ms: number, uptime_ms: number|null, resident_bytes: number|null, lag_ms: number|null}} Process */
/** @typedef {{processes: Process[], found: number, roles: Record<string, Record<string, number>>, versions: Record<string, Record<string, number>>, problems: string[], warnings: string[], notes: string[]}} Fleet */

const state = new AddressState({ role: "", state: "", filter: "", offset: "0", refresh: "10s" });
const { feed } = startFeed({
  load: (signal) => {
    const { role, state: wanted, filter, offset } = state.now;
    return ask("status", { role, state: wanted, filter, offset: Math.max(0, Number.parseInt(offset, 10) || 0), limit: LISTED }, signal);
  },
  show: (status) => show(status.fleet ?? null),
  refresh: state.now.refresh,
});

/** Changes what is listed and asks for it. @param {Record<string, string>} changes */
function change(changes) {
  state.set({ offset: "0", ...changes });
  adopt();
  void feed.restart();
}

/** @param {Fleet|null} fleet */
function show(fleet) {
  if (!fleet) return fill(byId("list"), [el("p", { class: "faint", text: "This API does not know the processes of the cluster." })]);
  const offset = Number(state.now.offset) || 0, size = fleet.processes.length;
  // the list became shorter than the page: its last page is shown
  if (!size && fleet.found) return change({ offset: String(LISTED * Math.floor((fleet.found - 1) / LISTED)) });
  const usual = commonest(fleet.versions);
  const empty = el("p", { class: "faint", text: Object.keys(fleet.roles).length ? "No process fits." : "No process has reported." });
  fill(byId("list"), size ? [table("Processes", COLUMNS, fleet.processes.flatMap((one) => lines(one, usual)))] : [empty]);
  pager(byId("pager"), { offset, shown: size, found: fleet.found, size: LISTED }, (to) => change({ offset: String(to) }));
  byId("count").textContent = plural(fleet.found, "process", "processes");
  fill(byId("roles"), Object.keys(fleet.roles).length ? [table("Roles", ["Role", "State", "Version"], Object.entries(fleet.roles).map(([role, states]) => roleLine(role, states, fleet.versions[role] ?? {}, usual)))] : []);
  const told = [...list("Problems", "bad", fleet.problems), ...list("Warnings", "warn", [...fleet.warnings, ...fleet.notes])];
  fill(byId("problems"), told.length ? told : [el("p", { class: "panel-line" }, mark("good"), el("span", { text: "No problem." }))]);
}

/** Returns the version that most processes have. @param {Fleet["versions"]} versions */
function commonest(versions) {
  const counts = /** @type {Map<string, number>} */ (new Map());
  for (const one of Object.values(versions)) for (const [version, count] of Object.entries(one)) counts.set(version, (counts.get(version) ?? 0) + count);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

/** Creates the text of a version, with a mark if most processes have another. @param {string} version @param {string} usual */
function versionText(version, usual) {
  if (!version) return el("span", { text: "–" });
  return el("span", { class: "state" }, version === usual ? null : mark("warn", "other version:"), version);
}

/** Creates one row, and a full-width one below it for the problem. @param {Process} one @param {string} usual */
function lines(one, usual) {
  const time = (/** @type {number|null} */ ms) => (ms === null ? "–" : duration(ms));
  const seen = el("td", { class: "number", title: moment(one.seen_ms), text: `${duration(Date.now() - one.seen_ms)} ago` });
  const row = el("tr", {}, el("th", { scope: "row", text: one.instance, title: one.role }), cell(one.host || "–", "text"),
    cell(el("span", { class: "state" }, mark(MARKS[one.state] ?? "idle"), one.state)), cell(versionText(one.version, usual)),
    cell(time(one.lag_ms), "number"), cell(one.resident_bytes === null ? "–" : memory(Math.round(one.resident_bytes / 2 ** 20)), "number"), cell(time(one.uptime_ms), "number"), seen);
  return one.problem ? [row, el("tr", {}, el("td", { class: "problem", colspan: COLUMNS.length, text: one.problem }))] : [row];
}

/** @param {string} role @param {Record<string, number>} states @param {Record<string, number>} versions @param {string} usual */
function roleLine(role, states, versions, usual) {
  const act = () => change({});
  const parts = Object.entries(states).map(([name, count]) => el("div", { class: "state" }, mark(MARKS[name] ?? "idle"), stateLink(state, { role, state: name, offset: "0" }, `${count.toLocaleString("en-GB")} ${name}`, act)));
  const told = Object.entries(versions).map(([version, count]) => el("div", {}, versionText(version, usual), el("span", { class: "faint", text: ` ${count.toLocaleString("en-GB")}` })));
  return el("tr", {}, el("th", { scope: "row" }, stateLink(state, { role, state: "", offset: "0" }, role, act)), el("td", {}, ...parts), el("td", {}, ...told));
}

/** @param {string} name @param {"bad"|"warn"} kind @param {string[]} texts */
function list(name, kind, texts) {
  if (!texts.length) return [];
  return [el("ul", { class: `problems ${kind}`, "aria-label": name, tabindex: "0" }, ...texts.slice(0, PROBLEMS_MOST + 1).map((text) => el("li", {}, mark(kind), el("span", { text }))))];
}

/** @typedef {{agents: number, pushed: {version: string, made_ms: number, by: string, note: string, source: number|null}[], running: {version: string, agents: number}[], trials: number, refused: {agent: string, reason: string}[], refusals: number, problem: string}} Configuration */

/** Loads the roll-out of the configuration: it changes seldom, so only at the start and when asked. */
async function loadConfiguration() {
  try {
    fill(byId("configuration"), configurationParts(await ask("configuration", {})));
  } catch (error) {
    fill(byId("configuration"), [el("p", { class: "problem", text: error instanceof Error ? error.message : String(error) })]);
  }
}

/** @param {Configuration} found */
function configurationParts({ agents, pushed, running, trials, refused, refusals, problem }) {
  const told = [...(problem ? [problem] : []), ...refused.map((one) => `${one.agent} refuses: ${one.reason}`), ...(refusals > refused.length ? [`and ${refusals - refused.length} more`] : [])];
  const runs = running.map((one) => el("tr", {}, el("th", { scope: "row", class: "mono", text: one.version }), cell(one.agents.toLocaleString("en-GB"), "number")));
  const newest = pushed.map((one) => el("tr", {}, el("th", { scope: "row", class: "mono", text: one.version }), cell(moment(one.made_ms)), cell([one.by, one.note, one.source === null ? "" : `(rollback to ${one.source})`].filter(Boolean).join(" "), "text")));
  const summary = `${plural(agents, "agent")}${trials ? `, ${trials} on trial` : ""}. ${pushed.length ? "" : "No version was pushed."}`;
  return [...list("Refused", "warn", told), el("p", { class: "faint", text: summary }), ...(runs.length ? [table("Configuration that runs", ["Running", { text: "Agents", number: true }], runs)] : []), ...(newest.length ? [table("Newest versions", ["Newest", "Made", "By"], newest)] : [])];
}

/** Shows the state of the address in the form. */
function adopt() {
  for (const key of /** @type {const} */ (["role", "state"])) {
    const field = /** @type {HTMLSelectElement} */ (byId(key)), value = state.now[key];
    if (![...field.options].some((one) => one.value === value)) field.append(el("option", { value, text: value }));
    field.value = value;
  }
}

function wire() {
  const filter = /** @type {HTMLInputElement} */ (byId("filter"));
  filter.value = state.now.filter;
  filter.addEventListener("input", later(() => change({ filter: filter.value.trim() }), 300));
  for (const key of ["role", "state"]) byId(key).addEventListener("change", (event) => change({ [key]: /** @type {HTMLSelectElement} */ (event.target).value }));
  byId("list-form").addEventListener("submit", (event) => event.preventDefault());
  listenKeys({ r: () => { void feed.restart(); void loadConfiguration(); }, m: () => change({ state: state.now.state === "missing" ? "" : "missing" }) });
}

buildFrame("fleet");
adopt();
wire();
void loadConfiguration();
