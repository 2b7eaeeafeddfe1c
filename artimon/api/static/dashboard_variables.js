// Variables of a dashboard: their values from labels, queries and lists, and the controls that choose them.

import { ask } from "./api.js";
import { el } from "./dom.js";
import { builtIn, filled, literal, SHARED_S } from "./dashboard_values.js";

const OFFERED_MOST = 1_000;
const FOUND_MOST = 10_000;
/** Characters of a list of values in a query; a longer one is replaced by a pattern of every text. */
const LISTED_MOST = 2_000;
/** Value in the address for every value. */
const ALL = "*";

/** @typedef {import("./dashboard_values.js").Chosen} Chosen */

/**
 * Returns the offered values of each variable and the chosen ones; a variable may use those before it.
 * @param {any[]} variables @param {import("./dashboard_values.js").Round} round
 * @param {(name: string) => string[]} given values in the address
 */
export async function resolved(variables, round, given) {
  /** @type {Record<string, Chosen>} */ const chosen = {};
  /** @type {Record<string, string[]>} */ const offered = {};
  const problems = [];
  for (const variable of variables) {
    offered[variable.name] = [...variable.values];
    try {
      if (variable.label) offered[variable.name] = await labelValues(variable, round, { ...builtIn(round.span), ...chosen });
    } catch (error) {
      if (round.signal.aborted) throw error;
      problems.push(`${variable.title || variable.name}: ${error instanceof Error ? error.message : error}`);
    }
    const values = given(variable.name).length ? given(variable.name) : [...variable.default];
    const first = variable.multi ? [ALL] : offered[variable.name].slice(0, 1);
    const found = values.length ? values : first;
    const all = variable.multi && found.includes(ALL);
    const pattern = all ? everyOf(variable, offered[variable.name]) : undefined;
    chosen[variable.name] = { values: all ? offered[variable.name] : found, all, multi: variable.multi, pattern };
  }
  return { chosen, offered, problems };
}

/** Returns the regular expression of every value: those of a query or list may be fewer than the label has. @param {any} variable @param {string[]} offered */
function everyOf(variable, offered) {
  const listed = offered.map(literal).join("|");
  return variable.all ?? ((variable.query || variable.values.length) && listed && offered.length < OFFERED_MOST && listed.length <= LISTED_MOST ? listed : ".*");
}

/** @param {any} variable @param {import("./dashboard_values.js").Round} round @param {Record<string, Chosen>} chosen */
async function labelValues(variable, round, chosen) {
  const { label, series, query, lang } = variable;
  let found;
  if (query) found = (await round.matrix(filled(query, lang, chosen), lang)).series.map((one) => one.labels[label]);
  else if (series) found = (await ask("find", { selector: filled(series, "promql", chosen), limit: FOUND_MOST }, round.signal, undefined, SHARED_S)).series.map((/** @type {any} */ one) => one.labels[label]);
  else found = (await ask("label_values", { label, limit: FOUND_MOST }, round.signal, undefined, SHARED_S)).values;
  const texts = /** @type {string[]} */ (found.filter((/** @type {any} */ one) => one !== undefined));
  return [...new Set(texts)].sort((a, b) => a.localeCompare(b, "en", { numeric: true })).slice(0, OFFERED_MOST);
}

/**
 * Creates the controls.
 * @param {any[]} variables @param {Record<string, Chosen>} chosen @param {Record<string, string[]>} offered
 * @param {(name: string, values: string[]) => void} choose
 */
export function controls(variables, chosen, offered, choose) {
  return variables.map((one) => {
    const name = one.title || one.name, now = chosen[one.name];
    if (one.multi) return many(one.name, name, now, offered[one.name], choose);
    const isText = !one.label && !one.values.length;
    const change = (/** @type {Event} */ event) => choose(one.name, [/** @type {HTMLInputElement} */ (event.target).value]);
    const values = [...new Set([...now.values, ...offered[one.name]])];
    const field = isText
      ? el("input", { type: "text", value: now.values[0] ?? "", maxlength: "200", "data-key": `var ${one.name}`, onchange: change })
      : el("select", { "data-key": `var ${one.name}`, onchange: change }, ...values.map((value) => el("option", { value, text: value, selected: value === now.values[0] })));
    return el("label", { class: "field" }, el("span", { class: "field-name", text: name }), field);
  });
}

/**
 * @param {string} key @param {string} name @param {Chosen} now @param {string[]} offered
 * @param {(name: string, values: string[]) => void} choose
 */
function many(key, name, now, offered, choose) {
  const box = (/** @type {string} */ value, /** @type {string} */ text, /** @type {boolean} */ checked, /** @type {() => void} */ onchange) =>
    el("label", { class: "choice" }, el("input", { type: "checkbox", value, checked, "data-key": `var ${key} ${value}`, onchange }), el("span", { text }));
  const picked = new Set(now.all ? [] : now.values);
  const toggle = (/** @type {string} */ value) => () => {
    if (!picked.delete(value)) picked.add(value);
    choose(key, picked.size ? [...picked] : [ALL]);
  };
  const every = [...new Set([...picked, ...offered])];
  const text = now.all ? "all" : now.values.length > 2 ? `${now.values.length} chosen` : now.values.join(", ");
  return el("details", { class: "menu", "data-name": key }, el("summary", { "data-key": `menu ${key}` }, el("span", { class: "field-name", text: name }), " ", el("strong", { text })),
    el("div", { class: "choices", role: "group", "aria-label": name }, box(ALL, "all", now.all, () => choose(key, [ALL])), ...every.map((value) => box(value, value, picked.has(value), toggle(value)))));
}
