// State in the URL, so that a link shows the same view to others. Defaults are left out.

export const RANGES = ["15m", "1h", "3h", "12h", "3d"];
export const LANGUAGES = ["artimon", "promql"];
export const REFRESHES = ["off", "10s", "60s"];

/**
 * @typedef {object} State
 * @property {string} q the last query run
 * @property {string} lang one of LANGUAGES, that of `q`
 * @property {string} range one of RANGES
 * @property {"chart"|"table"} view
 * @property {string} refresh one of REFRESHES
 * @property {string} filter text that series must contain
 * @property {string} only the one series that is drawn, "" for all
 * @property {string} zoom "from-to" in epoch ms, or ""
 * @property {string} find text of the search panel
 */

/** @type {Readonly<State>} */
export const DEFAULTS = Object.freeze({
  q: "", lang: "artimon", range: "1h", view: "chart", refresh: "10s", filter: "", only: "", zoom: "", find: "",
});

/** @param {string} search @returns {State} unknown values become defaults */
export function read(search) {
  const given = new URLSearchParams(search);
  const state = { ...DEFAULTS };
  for (const key of /** @type {(keyof State)[]} */ (Object.keys(DEFAULTS))) {
    const value = given.get(key);
    if (value !== null) Object.assign(state, { [key]: value });
  }
  if (!LANGUAGES.includes(state.lang)) state.lang = DEFAULTS.lang;
  if (!RANGES.includes(state.range)) state.range = DEFAULTS.range;
  if (!REFRESHES.includes(state.refresh)) state.refresh = DEFAULTS.refresh;
  if (state.view !== "table") state.view = "chart";
  if (!/^\d{1,15}-\d{1,15}$/.test(state.zoom)) state.zoom = "";
  return state;
}

/** @param {State} state @returns {string} "?…" or "" */
export function write(state) {
  const out = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (value !== DEFAULTS[/** @type {keyof State} */ (key)]) out.set(key, value);
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
