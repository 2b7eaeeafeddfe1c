// Panel of the system's state: every hop of the samples with its lag, every part, the problems.

import { byId, el, fill, mark } from "./dom.js";
import { compact, duration, memory, plural } from "./format.js";

const PROBLEMS_MOST = 20;
const SLOW_LAG_MS = 120_000;
const PART_COLUMNS = 5;

/**
 * @typedef {{name: string, count: number|null, unit: string, lag_ms: number|null, detail: string, healthy: boolean}} Hop
 * @typedef {{name: string, state: string, healthy: boolean, restarts: number, rss_mb: number, memory_mb: number, uptime_s: number, problem: string}} Part
 * @typedef {{role: string, host: string, instance: string, version: string, state: string, problem: string, uptime_ms: number|null, resident_bytes: number|null}} Process
 * @typedef {{healthy: boolean, hops: Hop[], parts: Part[], problems: string[], warnings?: string[], stack?: string, shards: Record<string, any>, fleet?: {processes: Process[]}}} Status
 */

/** @param {Status} status of /api/status */
export function showSystem(status) {
  const hops = status.hops ?? [], parts = status.parts ?? [];
  const troubles = status.problems ?? [], warnings = status.warnings ?? [];
  fill(byId("hops"), hops.length ? [el("ol", { class: "hops" }, ...hops.map(hopLine))] : [noStack(status)]);
  const processes = status.fleet?.processes ?? [];
  fill(byId("parts"), parts.length ? [partsTable(parts)] : processes.length ? [processTable(processes)] : [noStack(status)]);
  fill(byId("problems"), [...list("Problems", "bad", troubles), ...list("Warnings", "warn", warnings)]);
  showHealth(status, hops, parts, troubles, warnings);
}

/** @param {string} name @param {"bad"|"warn"} state @param {string[]} texts */
function list(name, state, texts) {
  const shown = texts.slice(0, PROBLEMS_MOST).map((text) => el("li", {}, mark(state), el("span", { text })));
  if (texts.length > PROBLEMS_MOST) shown.push(el("li", { text: `and ${texts.length - PROBLEMS_MOST} more` }));
  return shown.length ? [el("ul", { class: `problems ${state}`, "aria-label": name, tabindex: "0" }, ...shown)] : [];
}

/** @param {Status} status */
function noStack(status) {
  const shards = Object.keys(status.shards ?? {}).length;
  return el("p", { class: "faint", text: `No stack runs on the API's data folder${shards ? `; ${plural(shards, "shard")} answered` : ""}. ${status.stack ?? ""}` });
}

/** @param {Status} status @param {Hop[]} hops @param {Part[]} parts @param {string[]} troubles @param {string[]} warnings */
function showHealth(status, hops, parts, troubles, warnings) {
  const sick = [...hops, ...parts].filter((one) => !one.healthy).length;
  const count = Math.max(sick, troubles.length);
  if (!status.healthy || count) setHealth("bad", plural(Math.max(count, 1), "problem"));
  else if (warnings.length) setHealth("warn", plural(warnings.length, "warning"));
  else setHealth("good", "All well");
}

/** @param {"good"|"warn"|"bad"|"idle"} state @param {string} word */
export function setHealth(state, word) {
  fill(byId("health"), [mark(state), el("span", { class: "word", text: word })]);
}

/** @param {Hop} hop */
function hopLine(hop) {
  const slow = hop.lag_ms !== null && hop.lag_ms > SLOW_LAG_MS;
  const state = hop.healthy ? (slow ? "warn" : "good") : "bad";
  const lag = hop.lag_ms === null ? "" : hop.lag_ms < 1000 ? "no lag" : `lag ${duration(hop.lag_ms)}`;
  const [stage, step] = hop.name.includes(": ") ? hop.name.split(": ") : [hop.name, ""];
  return el("li", { class: `hop ${state}` },
    mark(state, state === "good" ? "healthy:" : state === "warn" ? "slow:" : "unhealthy:"),
    el("div", { class: "hop-name" }, el("strong", { text: stage }), step ? ` ${step}` : null),
    el("div", { class: "hop-count number", title: hop.count === null ? "" : `${hop.count.toLocaleString("en-GB")} ${hop.unit}`, text: hop.count === null ? "–" : `${compact(hop.count)} ${hop.unit}` }),
    el("div", { class: "hop-detail", text: hop.detail }),
    el("div", { class: `hop-lag number ${slow ? "slow" : ""}`, text: lag }));
}

/** @param {Part[]} parts */
function partsTable(parts) {
  const head = el("tr", {}, el("th", { scope: "col", text: "Part" }), el("th", { scope: "col", text: "State" }), ...["Memory", "Up", "Restarts"].map((text) => el("th", { scope: "col", class: "number", text })));
  return el("table", { class: "grid parts" }, el("thead", {}, head), el("tbody", {}, ...parts.flatMap(partLines)));
}

/** @param {Process[]} processes */
function processTable(processes) {
  const head = el("tr", {}, ...["Process", "State"].map((text) => el("th", { scope: "col", text })), ...["Memory", "Up", "Version"].map((text) => el("th", { scope: "col", class: "number", text })));
  return el("table", { class: "grid parts" }, el("thead", {}, head), el("tbody", {}, ...processes.flatMap(processLines)));
}

/** Creates one row, and a full-width one below it for the problem. @param {Process} one */
function processLines(one) {
  const row = el("tr", {}, el("th", { scope: "row", title: one.role, text: one.host ? `${one.instance} on ${one.host}` : one.instance }),
    el("td", {}, el("span", { class: "state" }, mark(one.problem ? "bad" : "good"), el("span", { text: one.state }))),
    el("td", { class: "number", text: one.resident_bytes === null ? "–" : memory(one.resident_bytes / 2 ** 20) }),
    el("td", { class: "number", text: one.uptime_ms === null ? "–" : duration(one.uptime_ms) }),
    el("td", { class: "number", text: one.version || "–" }));
  return one.problem ? [row, el("tr", {}, el("td", { class: "problem", colspan: PART_COLUMNS, text: one.problem }))] : [row];
}

/** Creates one row, and a full-width one below it for the problem. @param {Part} part */
function partLines(part) {
  const state = part.healthy ? "good" : "bad";
  const used = el("td", { class: "number", title: `limit ${memory(part.memory_mb)}`, text: memory(part.rss_mb) });
  if (part.memory_mb) used.append(el("progress", { max: part.memory_mb, value: Math.min(part.rss_mb, part.memory_mb), "aria-label": `Memory of ${part.name}` }));
  const cell = el("td", {}, el("span", { class: "state" }, mark(state), el("span", { text: part.state })));
  const row = el("tr", {}, el("th", { scope: "row", text: part.name }), cell, used,
    el("td", { class: "number", text: part.uptime_s ? duration(part.uptime_s * 1000) : "–" }),
    el("td", { class: `number ${part.restarts ? "attention" : ""}`, text: String(part.restarts) }));
  return part.problem ? [row, el("tr", {}, el("td", { class: "problem", colspan: PART_COLUMNS, text: part.problem }))] : [row];
}
