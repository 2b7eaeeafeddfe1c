// Parts of the pages with lists: state in the address, refreshes, keys, tables, pages of a list.

import { byId, el, fill } from "./dom.js";
import { duration } from "./format.js";
import { Feed, sayAge, Scheduler } from "./scheduler.js";

const INTERVALS = /** @type {Record<string, number>} */ ({ off: 0, "2s": 2_000, "10s": 10_000, "60s": 60_000 });

/** State of a page in its address. Defaults are left out. @template {Record<string, string>} S */
export class AddressState {
  /** @param {S} defaults */
  constructor(defaults) {
    const given = new URLSearchParams(location.search);
    this.defaults = defaults;
    /** @type {S} */
    this.now = /** @type {any} */ (Object.fromEntries(Object.entries(defaults).map(([key, value]) => [key, given.get(key) ?? value])));
    window.addEventListener("popstate", () => location.reload());
  }

  /** Returns the address of the page with other values. @param {Partial<S>} changes */
  address(changes) {
    const kept = Object.entries({ ...this.now, ...changes }).filter(([key, value]) => value !== this.defaults[key]);
    return kept.length ? `?${new URLSearchParams(/** @type {any} */ (kept))}` : location.pathname;
  }

  /** Changes values. @param {Partial<S>} changes @param {boolean} [fresh] true for a new entry in the browser's history */
  set(changes, fresh = false) {
    const target = this.address(changes);
    Object.assign(this.now, changes);
    if (fresh) history.pushState(null, "", target);
    else history.replaceState(null, "", target);
  }
}

/**
 * Creates the feed of a page: its errors go to #problem, its age to #age.
 * @template T
 * @param {{load: (signal: AbortSignal) => Promise<T>, show: (data: T) => void, refresh: string}} page
 */
export function startFeed({ load, show, refresh }) {
  const scheduler = new Scheduler();
  const feed = new Feed({
    load, show: (data) => { byId("problem").textContent = ""; show(data); },
    fail: (error) => { byId("problem").textContent = error.message; },
    age: (one) => sayAge(byId("age"), one, { ago: duration }),
  });
  scheduler.add(feed);
  scheduler.every(INTERVALS[refresh] ?? INTERVALS["10s"]);
  scheduler.tick();
  return { feed, every: (/** @type {string} */ word) => scheduler.every(INTERVALS[word] ?? 0) };
}

/** Listens to single keys outside of fields: `?` for the help, `/` for the field #filter, and others. @param {Record<string, () => void>} keys */
export function listenKeys(keys) {
  const help = /** @type {HTMLDialogElement} */ (byId("help"));
  const all = /** @type {Record<string, () => void>} */ ({ "?": () => help.showModal(), "/": () => byId("filter").focus(), ...keys });
  document.addEventListener("keydown", (event) => {
    const writes = event.target instanceof HTMLElement && event.target.matches('input:not([type="radio"]), textarea, select');
    if (event.defaultPrevented || writes || event.ctrlKey || event.metaKey || event.altKey || help.open || !(event.key in all)) return;
    event.preventDefault();
    all[event.key]();
  });
}

/** Creates a table. @param {string} name for screen readers @param {(string|{text: string, number: boolean})[]} columns @param {Node[]} rows */
export function table(name, columns, rows) {
  const head = columns.map((one) => el("th", { scope: "col", class: typeof one === "string" ? null : "number", text: typeof one === "string" ? one : one.text }));
  return el("table", { class: "grid", "aria-label": name }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}

/** Creates a cell. @param {Node|string|null} content @param {string} [kind] class */
export const cell = (content, kind) => el("td", { class: kind ?? null }, content);

/**
 * Creates a link to another state of the page, which changes it without loading it again.
 * @param {AddressState<any>} state @param {Record<string, string>} changes @param {string} text @param {() => void} act @param {Record<string, any>} [more] attributes
 */
export function stateLink(state, changes, text, act, more = {}) {
  const chosen = Object.entries(changes).every(([key, value]) => state.now[key] === value);
  const clicked = (/** @type {MouseEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.set(changes, true);
    act();
  };
  return el("a", { href: state.address(changes), text, "aria-current": chosen ? "true" : null, "data-key": `state ${JSON.stringify(changes)}`, onclick: clicked, ...more });
}

/** Address of Explore with a query. @param {string} q @param {Record<string, string>} [more] */
export const explore = (q, more = {}) => `./?${new URLSearchParams({ q, ...more })}`;

/** Shows where a list stands, with buttons to other pages. @param {HTMLElement} place @param {{offset: number, shown: number, found: number, size: number}} page @param {(offset: number) => void} turn */
export function pager(place, { offset, shown, found, size }, turn) {
  if (found <= size) return fill(place, []);
  const button = (/** @type {string} */ text, /** @type {string} */ name, /** @type {number} */ to, /** @type {boolean} */ disabled) =>
    el("button", { type: "button", text, "aria-label": name, "data-key": name, disabled, onclick: () => turn(to) });
  const number = (/** @type {number} */ one) => one.toLocaleString("en-GB");
  fill(place, [
    button("‹", "Page before", Math.max(0, offset - size), offset === 0),
    el("span", { class: "faint", text: `${number(offset + 1)} to ${number(offset + shown)} of ${number(found)}` }),
    button("›", "Next page", offset + size, offset + shown >= found),
  ]);
}
