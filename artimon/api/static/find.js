// Search panel: names of variables by prefix, series by selector and label.

import { ApiError, ask } from "./api.js";
import { byId, el, fill, later } from "./dom.js";
import { plural, quote } from "./format.js";
import { fetchText } from "./language.js";
import { remember } from "./state.js";

const LISTED = 200;
const WAIT_MS = 180;

/** @typedef {{series: string, name: string, labels: Record<string, string>, type: string, kind: string}} Found */

export class Find {
  /**
   * @param {import("./state.js").State} state
   * @param {(text: string) => void} use puts a query in the box and runs it
   */
  constructor(state, use) {
    this.state = state;
    this.use = use;
    this.text = /** @type {HTMLInputElement} */ (byId("find-text"));
    this.label = /** @type {HTMLSelectElement} */ (byId("find-label"));
    this.value = /** @type {HTMLInputElement} */ (byId("find-value"));
    this.abort = new AbortController();
    const soon = later(() => this.look(), WAIT_MS);
    this.text.addEventListener("input", soon);
    this.value.addEventListener("input", soon);
    this.label.addEventListener("change", () => this._labelChosen());
    // Enter does not submit a form of two fields without a button, so it is handled here
    byId("find-form").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.target instanceof HTMLInputElement)) return;
      event.preventDefault();
      void this.look();
    });
  }

  /** Applies the state in the URL and searches. */
  adopt() {
    this.text.value = this.state.find;
    void this._labels();
    void this.look();
  }

  async _labels() {
    try {
      const { labels } = await ask("labels", { limit: 1000 });
      const chosen = this.label.value;
      this.label.replaceChildren(el("option", { value: "", text: "any label" }), ...labels.map((/** @type {string} */ one) => el("option", { value: one, text: one })));
      this.label.value = labels.includes(chosen) ? chosen : "";
    } catch {
      // ignored: the search below reports that the API does not answer
    }
  }

  async _labelChosen() {
    this.value.value = "";
    this.value.disabled = !this.label.value;
    void this.look();
    if (!this.label.value) return;
    try {
      const { values } = await ask("label_values", { label: this.label.value, limit: 500 });
      fill(byId("find-values"), values.map((/** @type {string} */ value) => el("option", { value })));
    } catch {
      fill(byId("find-values"), []);
    }
  }

  /** Searches as the form says and lists the result. A new search aborts an earlier one. */
  async look() {
    this.abort.abort();
    const { signal } = (this.abort = new AbortController());
    const text = this.text.value.trim();
    this.state.find = text;
    remember(this.state, false);
    try {
      const selector = this._selector(text);
      if (selector) this._series(await ask("find", { selector, limit: LISTED }, signal));
      else this._names(await ask("names", { prefix: text, limit: LISTED }, signal), text);
      byId("find-problem").textContent = "";
    } catch (problem) {
      if (signal.aborted) return;
      byId("find-count").textContent = "";
      byId("find-problem").textContent = problem instanceof ApiError ? problem.message : String(problem);
      fill(byId("find-list"), []);
    }
  }

  /** Returns a selector if the form searches for series, "" if for names. @param {string} text */
  _selector(text) {
    const label = this.label.value, value = this.value.value;
    const matcher = label ? `${label}${value ? `=${quote(value)}` : '!=""'}` : "";
    const selects = text.includes("{") || text.endsWith(".*");
    if (!matcher) return selects ? text : "";
    if (text.endsWith("}")) return `${text.slice(0, -1)}${/\{\s*\}$/.test(text) ? "" : ","}${matcher}}`;
    if (selects) return `${text}{${matcher}}`;
    const start = text ? `__name__=~${quote(`${text.replace(/[^\w:/ -]/g, "\\$&")}.*`)},` : "";
    return `{${start}${matcher}}`;
  }

  /** @param {{names: string[], truncated: boolean}} found @param {string} prefix */
  _names({ names, truncated }, prefix) {
    this._count(names.length, truncated, "name");
    if (!names.length) return fill(byId("find-list"), [el("p", { class: "faint", text: prefix ? `No name begins with “${prefix}”.` : "No variable has arrived yet." })]);
    const items = names.map((name) => el("li", {}, el("button", { type: "button", class: "link mono", "data-key": name, title: "Show its series", text: name, onclick: () => this._narrow(name) })));
    fill(byId("find-list"), [el("ul", { class: "names" }, ...items)]);
  }

  /** @param {string} name */
  _narrow(name) {
    this.text.value = `${name}{}`;
    void this.look();
    this.text.focus({ preventScroll: true });
  }

  /** @param {{series: Found[], truncated: boolean}} found */
  _series({ series, truncated }) {
    this._count(series.length, truncated, "series", "series");
    if (!series.length) return fill(byId("find-list"), [el("p", { class: "faint", text: "No series fits." })]);
    const head = el("tr", {}, ...["Series", "Type", "Kind"].map((text) => el("th", { scope: "col", text })), el("th", { scope: "col" }, el("span", { class: "unseen", text: "Rate" })));
    fill(byId("find-list"), [el("table", { class: "grid" }, el("thead", {}, head), el("tbody", {}, ...series.map((one) => this._line(one))))]);
  }

  /** @param {Found} found */
  _line({ series, type, kind }) {
    const open = el("button", { type: "button", class: "link mono", "data-key": series, title: "Put it in the query", text: series, onclick: () => this.use(fetchText(series)) });
    const rate = el("button", { type: "button", class: "small", "data-key": `rate ${series}`, "aria-label": `Rate of ${series}`, text: "rate", onclick: () => this.use(`${fetchText(series)}.rate()`) });
    return el("tr", {}, el("td", { class: "name-cell" }, open), el("td", { class: "faint", text: type.toLowerCase() }), el("td", { class: "faint", text: kind.toLowerCase() }), el("td", {}, kind === "COUNTER" ? rate : null));
  }

  /** @param {number} count @param {boolean} truncated @param {string} one @param {string} [many] */
  _count(count, truncated, one, many) {
    byId("find-count").textContent = truncated ? `the first ${plural(count, one, many)}` : plural(count, one, many);
  }
}
