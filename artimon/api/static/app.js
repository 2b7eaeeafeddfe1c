// Main module: connects the state in the URL, the query box, the answer, and the panels with their refresh timer.

import { showAlerts } from "./alerts.js";
import { ask, QUERY_DEADLINE_MS } from "./api.js";
import { Asking } from "./asking.js";
import { CompletenessLine } from "./completeness.js";
import { byId, el } from "./dom.js";
import { Endpoints } from "./endpoints.js";
import { EXAMPLES, PROMQL_EXAMPLES } from "./examples.js";
import { Find } from "./find.js";
import { duration } from "./format.js";
import { buildFrame, onTheme } from "./frame.js";
import { listen } from "./keys.js";
import { withRange } from "./language.js";
import { rangeOf, ROUTE, toMatrix } from "./promql.js";
import { Result } from "./result.js";
import { Feed, sayAge, Scheduler } from "./scheduler.js";
import { read, remember } from "./state.js";
import { Suggestions } from "./suggestions.js";
import { setHealth, showSystem } from "./system.js";

const INTERVALS = /** @type {Record<string, number>} */ ({ off: 0, "10s": 10_000, "60s": 60_000 });
const WORDS = { ago: duration };
const PANEL_LONGEST_MS = 10_000;

const state = read(location.search);
const scheduler = new Scheduler();
const result = new Result(state);
const asking = new Asking((text) => run(text));
const completeness = new CompletenessLine();
const find = new Find(state, (text) => use(text));
new Suggestions(asking);

const query = new Feed({
  load: async (signal) => {
    const asked = request();
    byId("result").setAttribute("aria-busy", "true");
    query_asked = asked;
    const answer = await ask(asked.route, asked.parameters, signal, QUERY_DEADLINE_MS);
    return { asked, matrix: asked.range ? toMatrix(answer, asked.range) : answer };
  },
  show: ({ asked, matrix }) => {
    asking.accept();
    result.show(matrix, asked);
    void completeness.show(asked.range ? "" : asked.q);
  },
  fail: (error) => {
    const wrong = error.status >= 400 && error.status < 500 && error.status !== 429;
    if (wrong || !result.matrix) asking.refuse(error, query_asked.text, query_asked.shift);
    if (!result.matrix) result.clear([el("p", { class: "empty-title", text: "No answer" }), el("p", { text: "The message under the query says why." })]);
  },
  age: (feed) => {
    byId("result").setAttribute("aria-busy", String(feed.running));
    if (state.q && (feed.shown_ms || feed.running)) sayAge(byId("result-age"), feed, WORDS);
    else byId("result-age").textContent = "";
  },
});
let query_asked = { text: "", shift: 0 };

/** Returns the request of the current query. */
function request() {
  const text = state.q;
  if (state.lang === "promql") {
    const range = rangeOf(text, state.range, Date.now());
    return { text, q: text, shift: 0, route: ROUTE, parameters: range, range };
  }
  const { q, shift } = withRange(text, state.range);
  return { text, q, shift, route: "query", parameters: { q }, range: null };
}

/**
 * Creates a panel that polls one route.
 * @param {string} route @param {string[]} lines ids @param {(data: any) => void} show @param {() => void} [fail]
 * @param {() => Record<string, string|number>} [parameters]
 */
function panel(route, lines, show, fail, parameters = () => ({})) {
  const feed = new Feed({
    load: (signal) => ask(route, parameters(), signal), show, fail, longest_ms: PANEL_LONGEST_MS,
    age: (/** @type {Feed<any>} */ one) => lines.forEach((id) => sayAge(byId(id), one, WORDS)),
  });
  scheduler.add(feed);
  return feed;
}

scheduler.add(query);
panel("status", ["system-age", "parts-age"], showSystem, () => setHealth("idle", "No answer"));
panel("alerts", ["alerts-age"], (data) => showAlerts(data, use));
const endpoints = new Endpoints(use, () => void endpoints_feed.restart());
const endpoints_feed = panel("endpoints", ["endpoints-age"], (data) => endpoints.show(data), undefined, () => endpoints.parameters);

/** Runs the query `text` from now on; another query starts with an empty answer. @param {string} text */
function run(text) {
  const other = text !== state.q;
  if (other) Object.assign(state, { q: text, only: "", zoom: "" });
  remember(state, other);
  if (other) result.adopt();
  start(other);
}

/** @param {boolean} fresh forget the answer that is shown */
function start(fresh) {
  query.enabled = state.q !== "";
  if (fresh) {
    query.shown_ms = 0;
    result.clear([]);
    asking.accept();
  }
  if (query.enabled) return void query.restart();
  query.stop();
  query.error = null;
  asking.accept();
  result.clear(welcome());
}

/** Put `text` in the box of a language and run it. @param {string} text @param {string} [lang] */
async function use(text, lang = "artimon") {
  await speak(lang);
  asking.write(text);
  asking.submit();
  byId("ask").scrollIntoView({ block: "nearest" });
}

/** Changes the language of the query. @param {string} lang */
async function speak(lang) {
  choose("lang", lang);
  await asking.speak(lang);
  if (lang === state.lang) return;
  Object.assign(state, { lang, q: "", only: "", zoom: "" });
}

/** Changes the language by the switch: the text in its box is not run. @param {string} lang */
async function switchTo(lang) {
  await speak(lang);
  if (state.lang !== lang || asking.lang !== lang) return;
  remember(state, true);
  result.adopt();
  start(true);
  asking.focus();
}

/** Shows the text before the first query. */
function welcome() {
  const { lang } = state;
  const examples = (lang === "promql" ? PROMQL_EXAMPLES : EXAMPLES).map(({ text, about }) => el("li", {},
    el("button", { type: "button", class: "example", onclick: () => use(text, lang) }, el("code", { text }), el("span", { class: "faint", text: about }))));
  return [el("p", { class: "empty-title", text: "Ask a question, or begin with one of these" }), el("ul", { class: "examples" }, ...examples)];
}

/** @param {"chart"|"table"} view */
function show(view) {
  state.view = view;
  for (const name of ["chart", "table"]) {
    const tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === view));
    tab.tabIndex = name === view ? 0 : -1;
  }
  remember(state, false);
  result.update();
}

/** Applies the state in the URL. */
function adopt() {
  choose("lang", state.lang);
  void asking.speak(state.lang).then(() => asking.write(state.q));
  result.adopt();
  choose("range", state.range);
  /** @type {HTMLSelectElement} */ (byId("refresh")).value = state.refresh;
  scheduler.every(INTERVALS[state.refresh]);
  show(state.view);
  find.adopt();
  start(true);
}

/** @param {string} name of radio buttons @param {string} value */
function choose(name, value) {
  const chosen = /** @type {HTMLInputElement|null} */ (document.querySelector(`input[name="${name}"][value="${value}"]`));
  if (chosen) chosen.checked = true;
}

function wire() {
  for (const view of /** @type {const} */ (["chart", "table"])) {
    byId(`tab-${view}`).addEventListener("click", () => show(view));
    byId(`tab-${view}`).addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = view === "chart" ? "table" : "chart";
      show(other);
      byId(`tab-${other}`).focus();
    });
  }
  byId("lang").addEventListener("change", (event) => void switchTo(/** @type {HTMLInputElement} */ (event.target).value));
  byId("range").addEventListener("change", (event) => {
    Object.assign(state, { range: /** @type {HTMLInputElement} */ (event.target).value, zoom: "" });
    result.adopt();
    remember(state, true);
    start(false);
  });
  byId("refresh").addEventListener("change", (event) => {
    state.refresh = /** @type {HTMLSelectElement} */ (event.target).value;
    remember(state, false);
    scheduler.every(INTERVALS[state.refresh]);
  });
  onTheme(recolour);
  addEventListener("popstate", () => { Object.assign(state, read(location.search)); adopt(); });
  listen({ view: show, refresh: () => scheduler.feeds.forEach((feed) => feed.enabled && void feed.refresh()), ask: () => asking.focus() });
}

function recolour() {
  result.chart.recolour();
  result.update();
}

buildFrame("./");
wire();
adopt();
scheduler.tick();
