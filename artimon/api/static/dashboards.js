// Page of dashboards: the list, or one dashboard whose whole state is in the address.

import { ApiError, ask } from "./api.js";
import { edit, obstacle, showVersions } from "./dashboard_editor.js";
import { linksOf, PanelView } from "./dashboard_panels.js";
import { snapshot } from "./dashboard_snapshot.js";
import { builtIn, filled, readable, Round, selectsNothing } from "./dashboard_values.js";
import { controls, resolved } from "./dashboard_variables.js";
import { announce, byId, el, fill } from "./dom.js";
import { duration } from "./format.js";
import { buildFrame, onTheme } from "./frame.js";
import { Increments } from "./increments.js";
import { listMarks, marksIn } from "./marks.js";
import { RangePicker } from "./range_picker.js";
import { Feed, sayAge, Scheduler } from "./scheduler.js";
import { REFRESHES } from "./state.js";
import { isZone, leastInterval, normalized, spanOf } from "./time_range.js";

const INTERVALS = /** @type {Record<string, number>} */ ({ off: 0, "10s": 10_000, "60s": 60_000 });
const REPEATED_MOST = 24;
const EXAMPLE = `title: My dashboard
range: 1h
variables:
- {name: host, title: Host, label: host, series: host.load, multi: true}
panels:
- title: Load over five minutes
  queries:
  - q: fetch('host.load{host=~"$host",window="5m"}')
    legend: "{host}"
`;

const parameters = new URLSearchParams(location.search);
const name = parameters.get("name") ?? "";
const scheduler = new Scheduler();
const increments = new Increments();
/** @type {PanelView[]} */ let views = [];
/** @type {any} */ let stored = null;
let shape = "";

/** Writes the address; null removes a parameter. @param {Record<string, string|string[]|null>} changes @param {boolean} [fresh] */
function remember(changes, fresh = true) {
  for (const [key, value] of Object.entries(changes)) {
    parameters.delete(key);
    for (const one of Array.isArray(value) ? value : value === null ? [] : [value]) parameters.append(key, one);
  }
  const target = `${location.pathname}?${parameters}`;
  if (fresh) history.pushState(null, "", target);
  else history.replaceState(null, "", target);
}

/** @type {RangePicker|null} */ let picker = null;
const range = () => normalized(parameters.get("range") ?? "", "UTC", Date.now()) || (stored?.dashboard?.range ?? "1h");
const zone = () => (isZone(parameters.get("zone") ?? "") ? parameters.get("zone") ?? "" : "");
const refresh = () => known(REFRESHES, parameters.get("refresh")) ?? stored?.dashboard?.refresh ?? "60s";

/** @param {string[]} words @param {string|null} given */
const known = (words, given) => (given !== null && words.includes(given) ? given : null);

const feed = new Feed({
  load: async (signal) => {
    const round = new Round(signal, spanOf(range(), Date.now()), increments);
    const found = await resolved(stored.dashboard.variables, round, (one) => parameters.getAll(`var-${one}`));
    lay(found);
    latest = round;
    const near = visible().filter((view) => view.near);
    const loading = near.map((view) => view.load(round)); // they ask before the marks
    const marking = mark(round, found.chosen).catch((error) => { if (!signal.aborted) listMarks([], `Marks: ${error?.message ?? error}`); });
    const loaded = await Promise.allSettled(loading);
    const failed = loaded.filter((one) => one.status === "rejected").map((one) => one.reason);
    if (signal.aborted) throw new ApiError("another question came first", 0);
    byId("problem").textContent = found.problems.join("; ");
    await marking;
    const asking = loaded.length - near.filter((view) => view.panel.kind === "text").length;
    if (asking && failed.length === asking) throw failed[0];
  },
  show: () => undefined,
  least_ms: () => leastInterval(range(), Date.now()),
  age: (one) => { const line = document.getElementById("age"); if (line && (one.shown_ms || one.running)) sayAge(line, one, { ago: duration }); },
});

/** Marks alerts, starts and events in all charts and lists them, if the dashboard has marks. @param {Round} round @param {Record<string, import("./dashboard_values.js").Chosen>} chosen */
async function mark(round, chosen) {
  const { alerts, starts, queries = [] } = stored.dashboard.marks ?? {};
  if (!alerts && !starts && !queries.length) return;
  const every = { ...builtIn(round.span), ...chosen };
  const marks = `${alerts ? "alerts" : ""} ${starts ? "starts" : ""}`;
  const events = queries.map((/** @type {import("./marks.js").EventQuery} */ one) => ({ lang: one.lang, q: filled(one.q, one.lang, every), title: readable(one.title, chosen) }));
  const { found, problem } = await marksIn({ marks, starts: filled(starts ?? "", "artimon", every), events }, round.span, round.signal, (one, lang) => round.matrix(one, lang).catch(nothing), (one) => isOfChosen(one.labels ?? {}, chosen));
  views.forEach((view) => view.chart?.mark(found));
  listMarks(found, problem);
}

/** Returns an answer without series for a query whose variables nobody sends. @param {any} error @returns {import("./api.js").Matrix} */
function nothing(error) {
  if (!selectsNothing(error)) throw error;
  return { grid: { start_ms: 0, end_ms: 0, step_ms: 1, n: 0 }, complete: true, partial: false, notes: [], series: [] };
}

/** True unless a label of an alert has a value that is not chosen in the variable of this label. @param {Record<string, string>} labels @param {Record<string, import("./dashboard_values.js").Chosen>} chosen */
function isOfChosen(labels, chosen) {
  return stored.dashboard.variables.every((/** @type {any} */ { name: one, label }) => !label || !Object.hasOwn(labels, label) || chosen[one].all || chosen[one].values.includes(labels[label]));
}

/** @type {Round|null} */ let latest = null;
/** Panels ask once they come near the part of the page that is seen, so that a dashboard of 200 panels asks for some. */
const scrolled = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const view = views.find((one) => one.card === entry.target);
    if (!view) continue;
    view.near = entry.isIntersecting;
    if (view.near && latest && !view.isOf(latest)) void view.load(latest).catch(() => undefined);
  }
}, { rootMargin: "300px 0px" });

/** Panels that can be seen: all, or the one in the whole window. */
function visible() {
  const number = parameters.get("panel");
  return number === null ? views : views.filter((view) => String(view.number) === number);
}

/** Creates panels and controls, if they have changed. @param {Awaited<ReturnType<typeof resolved>>} found */
function lay({ chosen, offered }) {
  const { panels, variables } = stored.dashboard;
  const now = JSON.stringify([chosen, offered]);
  if (now === shape) return;
  shape = now;
  const open = new Set([...document.querySelectorAll(".menu[open]")].map((one) => /** @type {HTMLElement} */ (one).dataset.name));
  fill(byId("variables"), controls(variables, chosen, offered, (one, values) => { remember({ [`var-${one}`]: values }); again(); }));
  document.querySelectorAll(".menu").forEach((one) => { if (open.has(/** @type {HTMLElement} */ (one).dataset.name)) one.setAttribute("open", ""); });
  byId("variables").hidden = !variables.length;
  let number = 0;
  views.forEach((view) => view.chart?.clear());
  views = panels.flatMap((/** @type {any} */ panel) => {
    const values = panel.repeat ? chosen[panel.repeat].values.slice(0, REPEATED_MOST) : [null];
    return values.map((/** @type {string|null} */ value) => {
      const own = value === null ? chosen : { ...chosen, [panel.repeat]: { values: [value], all: false, multi: chosen[panel.repeat].multi } };
      number += 1;
      return new PanelView(panel, number, own, { full, zoom });
    });
  });
  fill(byId("board"), views.map((view) => view.card));
  showFull();
  scrolled.disconnect();
  views.forEach((view) => scrolled.observe(view.card));
}

/** @param {HTMLElement} card */
function isNear(card) {
  const box = card.getBoundingClientRect();
  return !card.hidden && box.top < innerHeight + 300 && box.bottom > -300;
}

let zooming = false;
/** Zooms all charts with one. @param {import("./chart.js").Chart} chart @param {[number, number]|null} to */
function zoom(chart, to) {
  if (zooming) return;
  zooming = true;
  for (const view of views) if (view.chart && view.chart !== chart && view.chart.plot) view.chart.zoomTo(to);
  zooming = false;
}

/** Shows one panel in the whole window, or all again. @param {number} number */
function full(number) {
  remember({ panel: parameters.get("panel") === String(number) ? null : String(number) });
  showFull();
  void feed.restart();
}

function showFull() {
  const number = parameters.get("panel");
  byId("board").classList.toggle("one", number !== null);
  for (const view of views) {
    view.card.hidden = number !== null && String(view.number) !== number;
    view.card.classList.toggle("whole", !view.card.hidden && number !== null);
  }
  for (const view of views) view.near = isNear(view.card);
}

/** Asks for the whole range again, because something was chosen. */
function again() {
  increments.clear();
  void feed.restart();
}

/** Shows the editor, the versions, or neither, as the address says. */
function showSide() {
  const actions = { saved: (/** @type {string} */ one) => location.assign(`dashboards?name=${encodeURIComponent(one)}`), close: () => { remember({ view: null }); showSide(); if (!name) location.assign("dashboards"); } };
  const view = parameters.get("view"), place = byId("side");
  if (view === "edit" && stored) edit(place, stored, actions);
  else if (view === "versions" && stored) void showVersions(place, stored, actions);
  else fill(place, []);
}

/** @param {string} view */
function toggleSide(view) {
  remember({ view: parameters.get("view") === view ? null : view });
  showSide();
}

async function save() {
  const round = latest;
  if (round) await Promise.allSettled(visible().filter((view) => !view.isOf(round)).map((view) => view.load(round)));
  const text = snapshot(stored.dashboard.title, byId("board"), views);
  const link = /** @type {HTMLAnchorElement} */ (el("a", { download: `${name}.html`, href: URL.createObjectURL(new Blob([text], { type: "text/html" })) }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  announce("Snapshot saved");
}

function drawHead() {
  const { dashboard } = stored;
  const choose = (/** @type {string} */ key) => (/** @type {Event} */ event) => { remember({ [key]: /** @type {HTMLSelectElement} */ (event.target).value }); scheduler.every(INTERVALS[refresh()]); again(); };
  const select = (/** @type {string} */ text, /** @type {string} */ key, /** @type {string[]} */ words, /** @type {string} */ now) =>
    el("label", { class: "field" }, el("span", { class: "field-name", text }), el("select", { id: key, onchange: choose(key) }, ...words.map((word) => el("option", { value: word, text: word, selected: word === now }))));
  const place = el("div", {});
  const button = (/** @type {string} */ text, /** @type {() => void} */ onclick) => el("button", { type: "button", text, onclick });
  fill(byId("head"), [
    el("nav", { "aria-label": "Path" }, el("a", { href: "dashboards", text: "Dashboards" }), " /"),
    el("h2", { text: dashboard?.title ?? name, title: dashboard?.description || null }),
    ...(dashboard ? [linksOf(dashboard.links, {})] : []),
    el("p", { id: "age", class: "age" }),
    el("div", { class: "tools" }, ...(dashboard ? [place, select("Refresh", "refresh", REFRESHES, refresh()), button("Snapshot", save)] : []), button(stored.obstacle ? "Text" : "Edit", () => toggleSide("edit")), button("Versions", () => toggleSide("versions"))),
  ]);
  if (dashboard) picker = new RangePicker(place, { range: range(), zone: zone() }, (now) => { remember({ range: now.range, zone: now.zone || null }); views.forEach((view) => view.chart?.zoomTo(null)); again(); });
  document.title = `${dashboard?.title ?? name} · Artimon`;
}

async function showList() {
  const { dashboards, writable } = await ask("dashboards", {});
  const blocked = await obstacle(writable);
  const told = writable ? null : el("p", { class: "faint", text: "These dashboards are read-only: start the API with --dashboards FOLDER to change them and to add others." });
  fill(byId("head"), [el("h2", { text: "Dashboards" }), el("div", { class: "tools" }, blocked ? null : el("a", { class: "button", href: "dashboards?view=edit", text: "New dashboard" }))]);
  const card = (/** @type {any} */ one) => el("li", { class: "card" }, el("h3", {}, el("a", { href: `dashboards?name=${encodeURIComponent(one.name)}`, text: one.title })), el("p", { class: "faint", text: one.description }), one.problem ? el("p", { class: "problem", text: one.problem }) : null);
  fill(byId("board"), [...(told ? [told] : []), el("ul", { class: "board-list" }, ...dashboards.map(card))]);
  byId("board").classList.add("list");
  if (parameters.get("view") !== "edit") return;
  stored = { name: "", etag: "", text: EXAMPLE, shipped: false, obstacle: blocked };
  showSide();
}

async function start() {
  buildFrame("dashboards");
  onTheme(() => views.forEach((view) => view.recolour()));
  document.addEventListener("keydown", pressed);
  window.addEventListener("popstate", () => location.reload());
  try {
    if (!name) return await showList();
    stored = await ask(`dashboards/${encodeURIComponent(name)}`, {});
    stored.obstacle = await obstacle(stored.writable);
    drawHead();
    showSide();
    byId("problem").textContent = stored.problem;
    if (!stored.dashboard) return;
    scheduler.add(feed);
    scheduler.every(INTERVALS[refresh()]);
    void feed.refresh();
  } catch (error) {
    byId("problem").textContent = error instanceof Error ? error.message : String(error);
  }
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const help = /** @type {HTMLDialogElement} */ (byId("help"));
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open || target.matches("textarea, select, input")) return;
  const number = /** @type {HTMLElement|null} */ (target.closest("[data-panel]"))?.dataset.panel ?? parameters.get("panel");
  /** @type {Record<string, () => void>} */
  const keys = { "?": () => help.showModal() };
  if (stored?.name) Object.assign(keys, { r: again, e: () => toggleSide("edit"), v: () => toggleSide("versions"), ...(number ? { f: () => full(Number(number)) } : {}) });
  if (!(event.key in keys) && !picker?.press(event.key)) return;
  event.preventDefault();
  keys[event.key]?.();
}

void start();
