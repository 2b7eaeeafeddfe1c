// Warnings about the query in the box, below it. They do not keep it from running.

import { ask } from "./api.js";
import { byId, el, fill, mark } from "./dom.js";
import { place } from "./language.js";

/** The query says itself that it cannot be parsed. */
const INVALID = "invalid";
/** Series that memory does not have: the history may have had them. */
const UNKNOWN = "no-series";

/** @typedef {{code: string, message: string, position: number|null, length: number}} Finding */

export class Lint {
  /** @param {(text: string, at: {start: number, end: number}) => void} select selects a place of the query, if its text is still in the box */
  constructor(select) {
    this.select = select;
    this.asked = "";
    this.abort = new AbortController();
  }

  /** Asks for the warnings, once for the same query. @param {string} q @param {string} lang @param {boolean} recent the range is one that memory holds */
  async ask(q, lang, recent) {
    const asked = JSON.stringify([q, lang, recent]);
    if (asked === this.asked) return;
    this.asked = asked;
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    if (!q.trim()) return fill(byId("lint"), []);
    try {
      const { findings } = await ask("lint", { q, lang }, signal);
      this._show(q, findings.filter((/** @type {Finding} */ one) => one.code !== INVALID && (recent || one.code !== UNKNOWN)));
    } catch {
      if (!signal.aborted) fill(byId("lint"), []); // an answer does not need them
    }
  }

  /** @param {string} q @param {Finding[]} findings */
  _show(q, findings) {
    fill(byId("lint"), findings.length ? [el("ul", { "aria-label": "Warnings about the query" }, ...findings.map((one) => this._line(q, one)))] : []);
  }

  /** @param {string} q @param {Finding} finding */
  _line(q, { code, message, position, length }) {
    const at = position === null ? null : place(q, position, length, 0);
    const shown = at && q.slice(at.start, at.end);
    const where = at ? el("button", { type: "button", class: "link mono", "data-key": `${code} ${position}`, title: "Select it in the query", text: shown, onclick: () => this.select(q, at) }) : null;
    return el("li", {}, mark("warn", "Warning"), el("span", {}, where, `${where ? ": " : ""}${message}`));
  }
}
