// Page of the running queries: their origin, age and limits; who may cancels them.

import { ask, send } from "./api.js";
import { announce, byId, el, fill, later, mark } from "./dom.js";
import { duration, plural } from "./format.js";
import { buildFrame } from "./frame.js";
import { AddressState, cell, explore, listenKeys, startFeed, table } from "./list_page.js";

/** Characters of a text that the API returns; a longer one is cut off and cannot be opened. */
const CUT_OFF = 2000;
const OLD_SHARE = 0.5;

/** @typedef {{id: string, query: string, language: string, client: string, user: string, engine: string, state: string, limits: string, timeout_ms: number, running_ms: number}} Query */

const state = new AddressState({ filter: "", refresh: "2s" });
const { feed, every } = startFeed({ load: (signal) => ask("queries", {}, signal), show, refresh: state.now.refresh });
/** @type {Query[]} */
let found = [];

/** @param {{queries: Query[]}} answer */
function show(answer) {
  found = answer.queries;
  draw();
}

function draw() {
  const words = state.now.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = found.filter((one) => {
    const text = [one.query, one.user, one.client, one.engine, one.language, one.state, one.limits].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  byId("count").textContent = words.length ? `${fits.length} of ${plural(found.length, "query", "queries")}` : plural(found.length, "query", "queries");
  if (!fits.length) return fill(byId("list"), [el("p", { class: "panel-line idle" }, mark("idle"), el("span", { text: found.length ? "No running query has these words." : "No query runs or waits now." }))]);
  const number = (/** @type {string} */ text) => ({ text, number: true });
  fill(byId("list"), [table("Running queries", ["Query", "User", "From", "Engine", "Limits", "State", number("Time"), "Cancel"], fits.map(line))]);
}

/** @param {Query} one */
function line(one) {
  const slow = one.running_ms > OLD_SHARE * one.timeout_ms;
  const address = explore(one.query, one.language === "artimon" ? {} : { lang: one.language });
  const text = one.query.length < CUT_OFF ? el("a", { class: "mono", href: address, "data-key": `open ${one.id}`, text: one.query }) : el("span", { class: "mono", text: `${one.query}…` });
  return el("tr", {},
    cell(text, "text"), cell(one.user), cell(one.client || "Thrift"), cell(one.language === "artimon" ? one.engine : `${one.engine}, PromQL`),
    cell(`${one.limits}, ${duration(one.timeout_ms)}`), cell(one.state),
    el("td", { class: "number" }, el("span", { class: "state" }, slow ? mark("warn", "more than half of its time:") : null, duration(one.running_ms))),
    cell(el("button", { type: "button", class: "small", "data-key": `cancel ${one.id}`, "aria-label": `Cancel ${one.query.slice(0, 80)}`, text: "Cancel", onclick: () => void cancel(one) })));
}

/** @param {Query} one */
async function cancel(one) {
  try {
    await send("DELETE", `queries/${encodeURIComponent(one.id)}`, {}, {});
    announce("Cancelled");
  } catch (error) {
    byId("problem").textContent = error instanceof Error ? error.message : String(error);
    return;
  }
  byId("queries").focus({ preventScroll: true });
  await feed.restart();
}

/** Tells whose queries are listed. */
async function showWho() {
  const who = await ask("whoami", {}).catch(() => null);
  byId("who").textContent = who?.login && who.level !== "admin" ? "These are your own queries. An administrator sees those of all users." : "";
}

function wire() {
  const filter = /** @type {HTMLInputElement} */ (byId("filter")), refresh = /** @type {HTMLSelectElement} */ (byId("refresh"));
  filter.value = state.now.filter;
  refresh.value = state.now.refresh;
  filter.addEventListener("input", later(() => { state.set({ filter: filter.value.trim() }); draw(); }, 150));
  refresh.addEventListener("change", () => { state.set({ refresh: refresh.value }); every(refresh.value); });
  byId("list-form").addEventListener("submit", (event) => event.preventDefault());
  listenKeys({ r: () => void feed.restart() });
}

buildFrame("queries");
wire();
void showWho();
