// Main module: connects the state in the URL, the query box, the answer, and the panels with their refresh timer.

import { showAlerts } from "./alerts.js";
import { ask } from "./api.js";
import { Asking } from "./asking.js";
import { CompletenessLine, isRecent, measureOf } from "./completeness.js";
import { byId, el, later } from "./dom.js";
import { Endpoints } from "./endpoints.js";
import { EXAMPLES, PROMQL_EXAMPLES } from "./examples.js";
import { Find } from "./find.js";
import { duration } from "./format.js";
import { buildFrame, onTheme } from "./frame.js";
import { listen } from "./keys.js";
import { Lint } from "./lint.js";
import { DEFAULT_STARTS, marksIn } from "./marks.js";
import { QueryList } from "./query_list.js";
import { answerOf, questionOf } from "./question.js";
import { RangePicker } from "./range_picker.js";
import { Result } from "./result.js";
import { Feed, sayAge, Scheduler } from "./scheduler.js";
import { letter, MARKS, read, remember, VIEWS } from "./state.js";
import { Suggestions } from "./suggestions.js";
import { setHealth, showSystem } from "./system.js";
import { earlier, leastInterval, parseDuration, spanOf } from "./time_range.js";

const INTERVALS = /** @type {Record<string, number>} */ ({ off: 0, "10s": 10_000, "60s": 60_000 });
const WORDS = { ago: duration };
/** Pause in typing after which the query is checked. */
const PAUSE_MS = 800;
const PANEL_LONGEST_MS = 10_000;
/** Status of a query that exceeds a soft limit, or the time of one. */
const COSTLY = [413, 504];
/** Queries that may use the hard limits, until the page is closed: a link never does. @type {Set<string>} */
const insisted = new Set();

const state = read(location.search);
const scheduler = new Scheduler();
const picker = new RangePicker(byId("range-place"), state, chooseRange);
const result = new Result(state, (from_ms, to_ms) => picker.between(from_ms, to_ms));
const asking = new Asking((text) => run(text), later(() => check(asking.text, asking.lang), PAUSE_MS));
const lint = new Lint((text, at) => asking.select(text, at));
const list = new QueryList(state, { edit: (index) => void edit(index), changed: () => { remember(state, true); start(false); } });
const completeness = new CompletenessLine();
const find = new Find(state, (text) => use(text));
new Suggestions(asking);

const query = new Feed({
  load: async (signal) => {
    const span = spanOf(state.range, Date.now());
    const visible = state.queries.flatMap((one, i) => (one.q && !one.hidden ? [{ ...one, i }] : [])), back_ms = parseDuration(state.compare);
    const name = (/** @type {number} */ i) => (visible.length > 1 ? letter(i) : "");
    const asked = visible.map(({ q, lang, i }) => ({ i, name: name(i), back_ms: 0, hard: false, question: questionOf(q, lang, span) }));
    if (back_ms) asked.push(...visible.map(({ q, lang, i }) => ({ i, name: name(i), back_ms, hard: false, question: questionOf(q, lang, earlier(span, back_ms)) })));
    for (const one of asked) one.hard = insisted.has(one.question.text);
    byId("result").setAttribute("aria-busy", "true");
    query_asked = asked.find((one) => one.i === state.edited)?.question ?? { text: "", shift: 0 };
    const settled = await Promise.allSettled(asked.map((one) => answerOf(one.question, signal, one.hard)));
    signal.throwIfAborted();
    const refused = settled.flatMap((one, at) => (one.status === "rejected" ? [{ ...asked[at], problem: one.reason }] : []));
    const failed = new Map(refused.filter((one) => !one.back_ms).map((one) => [one.i, one.problem]));
    list.show(failed);
    if (failed.size && failed.size === visible.length) throw failed.get(state.edited) ?? [...failed.values()][0];
    const found = settled.flatMap((one, at) => (one.status === "fulfilled" ? [{ ...asked[at], matrix: one.value }] : []));
    const notes = refused.filter((one) => one.back_ms && !failed.has(one.i)).map((one) => `${one.name || "Query"}, ${state.compare} before: ${one.problem.message}`);
    return { found, span, notes, problem: failed.get(state.edited) };
  },
  show: ({ found, span, notes, problem }) => {
    if (problem) refuse(problem);
    else asking.accept();
    if (!found.length) return result.clear([el("p", { class: "empty-title", text: "Every query is hidden" })]);
    result.show(found, notes, span);
    const { question } = result.asked;
    void completeness.show(measureOf(question.text, question.range ? "promql" : "artimon", span));
  },
  fail: (error) => {
    const wrong = error.status >= 400 && error.status < 500 && error.status !== 429;
    if (wrong || !result.some) refuse(error);
    if (!result.some) result.clear([el("p", { class: "empty-title", text: "No answer" }), el("p", { text: "The message under the query says why." })]);
  },
  least_ms: () => leastInterval(state.range, Date.now()),
  age: (feed) => {
    byId("result").setAttribute("aria-busy", String(feed.running));
    if (state.q && (feed.shown_ms || feed.running)) sayAge(byId("result-age"), feed, WORDS);
    else byId("result-age").textContent = "";
  },
});
/** @type {{text: string, shift: number}} */ let query_asked = { text: "", shift: 0 };

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

const marks = new Feed({
  load: (signal) => {
    const span = spanOf(state.range, Date.now());
    return marksIn(state, span, signal, (q, lang) => answerOf(questionOf(q, lang, span), signal));
  },
  show: ({ found, problem }) => { result.mark(found); byId("marks-problem").textContent = problem; },
  least_ms: () => Math.max(60_000, leastInterval(state.range, Date.now())),
  age: () => undefined,
});

scheduler.add(query);
scheduler.add(marks);
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

/** Shows the error of the edited query. @param {import("./api.js").ApiError} error */
function refuse(error) {
  const { text, shift } = query_asked;
  const insist = COSTLY.includes(error.status) && !insisted.has(text) ? () => { insisted.add(text); start(true); } : null;
  asking.refuse(error, text, shift, insist);
}

/** Shows warnings about a query. @param {string} q @param {string} lang */
function check(q, lang) {
  void lint.ask(q, lang, isRecent(spanOf(state.range, Date.now())));
}

/** Opens the dialog that saves the query. @param {Partial<import("./save.js").Saved>} [given] */
async function save(given = {}) {
  const { showSave } = await import("./save.js");
  await showSave({ q: state.q, lang: state.lang, what: "panel", ...given });
}

/** @param {boolean} fresh forget the answer that is shown */
function start(fresh) {
  query.enabled = state.queries.some((one) => one.q);
  /** @type {HTMLButtonElement} */ (byId("save-query")).disabled = !state.q;
  list.show();
  check(state.q, state.lang);
  if (fresh) {
    query.shown_ms = 0;
    result.clear([]);
    asking.accept();
  }
  marks.enabled = query.enabled && state.marks !== "";
  if (marks.enabled) void marks.restart();
  else {
    marks.stop();
    result.mark([]);
    byId("marks-problem").textContent = "";
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

/** Puts another query of the list in the box. @param {number} index */
async function edit(index) {
  state.edited = index;
  /** @type {HTMLButtonElement} */ (byId("save-query")).disabled = !state.q;
  remember(state, false);
  list.show();
  result.update();
  choose("lang", state.lang);
  await asking.speak(state.lang);
  asking.accept();
  asking.write(state.q);
  asking.focus();
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

/** @param {string} view one of VIEWS */
function show(view) {
  state.view = view;
  for (const name of VIEWS) {
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
  picker.adopt(state);
  field("compare").value = state.compare;
  field("starts").value = state.starts || DEFAULT_STARTS;
  for (const one of MARKS) field(`marks-${one}`).checked = state.marks.split(" ").includes(one);
  byId("starts").hidden = !field("marks-starts").checked;
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

/** @param {string} id @returns {HTMLInputElement} */
const field = (id) => byId(id);

/** Takes over what is compared and marked. */
function chooseMore() {
  const compare = field("compare").value.trim(), starts = field("starts").value.trim();
  const wrong = compare !== "" && compare !== "off" && parseDuration(compare) === null;
  field("compare").setAttribute("aria-invalid", String(wrong));
  byId("compare-problem").textContent = wrong ? `${compare} is not a duration: write such as 7d, or nothing.` : "";
  if (wrong) return;
  Object.assign(state, { compare: compare === "off" ? "" : compare, starts: starts === DEFAULT_STARTS ? "" : starts, marks: MARKS.filter((one) => field(`marks-${one}`).checked).join(" ") });
  byId("starts").hidden = !field("marks-starts").checked;
  remember(state, true);
  start(false);
}

/** @param {{range: string, zone: string}} chosen */
function chooseRange(chosen) {
  Object.assign(state, { ...chosen, zoom: "" });
  result.adopt();
  remember(state, true);
  start(false);
}

function wire() {
  VIEWS.forEach((view, at) => {
    byId(`tab-${view}`).addEventListener("click", () => show(view));
    byId(`tab-${view}`).addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = VIEWS[(at + (event.key === "ArrowLeft" ? VIEWS.length - 1 : 1)) % VIEWS.length];
      show(other);
      byId(`tab-${other}`).focus();
    });
  });
  byId("save-query").addEventListener("click", () => void save());
  byId("lang").addEventListener("change", (event) => void switchTo(/** @type {HTMLInputElement} */ (event.target).value));
  for (const id of ["compare", "starts", ...MARKS.map((one) => `marks-${one}`)]) byId(id).addEventListener("change", chooseMore);
  byId("refresh").addEventListener("change", (event) => {
    state.refresh = /** @type {HTMLSelectElement} */ (event.target).value;
    remember(state, false);
    scheduler.every(INTERVALS[state.refresh]);
  });
  onTheme(recolour);
  addEventListener("popstate", () => { Object.assign(state, read(location.search)); adopt(); });
  listen({ view: show, refresh: () => scheduler.feeds.forEach((feed) => feed.enabled && void feed.refresh()), ask: () => asking.focus(), range: (key) => picker.press(key) });
}

function recolour() {
  result.chart.recolour();
  result.update();
}

const given = new URLSearchParams(location.search);
buildFrame("./");
wire();
adopt();
if (given.has("alert")) void save({ what: "rule", threshold: given.get("alert") ?? "", name: given.get("name") ?? "", hold: given.get("for") ?? "5m", missing: given.get("missing") ?? "keep" });
scheduler.tick();
