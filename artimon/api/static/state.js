// State in the URL, so that a link shows the same view to others. Defaults are left out.

import { isZone, normalized, parseDuration } from "./time_range.js";

export const LANGUAGES = ["artimon", "promql"];
export const VIEWS = ["chart", "table", "heat", "samples", "explain"];
export const MARKS = ["alerts", "starts"];
export const REFRESHES = ["off", "10s", "60s"];

/** Maximum number of queries at once. */
export const QUERIES_MOST = 10;

/**
 * @typedef {{q: string, lang: string, hidden: boolean}} Query `lang`: one of LANGUAGES
 *
 * @typedef {object} State
 * @property {Query[]} queries at least one; those that run
 * @property {number} edited index of the query in the box
 * @property {string} q that of the edited query
 * @property {string} lang that of the edited query
 * @property {string} range as in time_range.js
 * @property {string} zone time zone of all shown times, "" for the browser's
 * @property {string} view one of VIEWS
 * @property {string} refresh one of REFRESHES
 * @property {string} filter text that series must contain
 * @property {string} only the one series that is drawn, "" for all
 * @property {string} zoom "from-to" in epoch ms, or ""
 * @property {string} find text of the search panel
 * @property {string} compare duration before now whose values are drawn too, "" for none
 * @property {string} marks words of MARKS that are drawn, with spaces
 * @property {string} starts query whose changes are marked as starts, "" for the default one
 */

/** @type {Readonly<Omit<State, "queries"|"edited"|"q"|"lang">>} */
export const DEFAULTS = Object.freeze({
  range: "1h", zone: "", view: "chart", refresh: "10s", filter: "", only: "", zoom: "", find: "", compare: "", marks: "", starts: "",
});

/** @param {string} search @returns {State} unknown values become defaults */
export function read(search) {
  const given = new URLSearchParams(search);
  const state = withQueries({ ...DEFAULTS, ...queriesOf(given) });
  for (const key of Object.keys(DEFAULTS)) {
    const value = given.get(key);
    if (value !== null) Object.assign(state, { [key]: value });
  }
  state.range = normalized(state.range, "UTC", Date.now()) || DEFAULTS.range;
  if (parseDuration(state.compare) === null) state.compare = DEFAULTS.compare;
  state.marks = MARKS.filter((one) => state.marks.split(" ").includes(one)).join(" ");
  if (!isZone(state.zone)) state.zone = DEFAULTS.zone;
  if (!REFRESHES.includes(state.refresh)) state.refresh = DEFAULTS.refresh;
  if (!VIEWS.includes(state.view)) state.view = DEFAULTS.view;
  if (!/^\d{1,15}-\d{1,15}$/.test(state.zoom)) state.zoom = "";
  return state;
}

/** @param {number} index @returns {string} the name of a query: A, B, … */
export const letter = (index) => String.fromCharCode(65 + index);

/** @param {URLSearchParams} given @returns {{queries: Query[], edited: number}} */
function queriesOf(given) {
  const langs = given.getAll("lang"), hidden = given.getAll("hide");
  const all = given.getAll("q").filter(Boolean).slice(0, QUERIES_MOST);
  const queries = (all.length ? all : [""]).map((q, i) => ({ q, lang: LANGUAGES.includes(langs[i]) ? langs[i] : LANGUAGES[0], hidden: hidden.includes(letter(i)) }));
  return { queries, edited: Math.max(0, queries.findIndex((_one, i) => letter(i) === given.get("edit"))) };
}

/** Adds `q` and `lang`, those of the edited query. @param {any} state @returns {State} */
function withQueries(state) {
  const of = (/** @type {"q"|"lang"} */ key) => ({
    get() { return state.queries[state.edited][key]; },
    set(/** @type {string} */ value) { state.queries[state.edited][key] = value; },
  });
  return Object.defineProperties(state, { q: of("q"), lang: of("lang") });
}

/** @param {State} state @returns {string} "?…" or "" */
export function write(state) {
  const out = new URLSearchParams();
  const kept = state.queries.filter((one) => one.q), edited = kept.indexOf(state.queries[state.edited]);
  for (const one of kept) out.append("q", one.q);
  const langs = kept.length ? kept : [state.queries[state.edited]];
  if (langs.some((one) => one.lang !== LANGUAGES[0])) for (const one of langs) out.append("lang", one.lang);
  kept.forEach((one, i) => { if (one.hidden) out.append("hide", letter(i)); });
  if (edited > 0) out.set("edit", letter(edited));
  for (const [key, value] of Object.entries(DEFAULTS)) {
    const now = state[/** @type {keyof typeof DEFAULTS} */ (key)];
    if (now !== value) out.set(key, now);
  }
  const text = out.toString();
  return text ? `?${text}` : "";
}

/**
 * Writes the state to the URL.
 * @param {State} state
 * @param {boolean} fresh true for a new entry in the browser's history
 */
export function remember(state, fresh) {
  const target = `${location.pathname}${write(state)}`;
  if (target === location.pathname + location.search) return;
  if (fresh) history.pushState(null, "", target);
  else history.replaceState(null, "", target);
}

/**
 * Reads a value from the browser's storage; without storage the default.
 * @param {string} key
 * @param {string} otherwise
 */
export function kept(key, otherwise) {
  try {
    return localStorage.getItem(`artimon.${key}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} key @param {string} value */
export function keep(key, value) {
  try {
    localStorage.setItem(`artimon.${key}`, value);
  } catch {
    // private mode, or full: the page works without
  }
}
