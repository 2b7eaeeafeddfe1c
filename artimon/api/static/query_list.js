// List of several queries: edit one in the box, hide, remove, add; each with its own error. One query needs no list.

import { byId, el, fill } from "./dom.js";
import { letter, QUERIES_MOST } from "./state.js";

export class QueryList {
  /**
   * @param {import("./state.js").State} state
   * @param {{edit: (index: number) => void, changed: () => void}} actions `changed`: other queries are to be asked
   */
  constructor(state, actions) {
    this.state = state;
    this.actions = actions;
    /** @type {Map<number, Error>} */ this.problems = new Map();
    byId("add-query").addEventListener("click", () => this._add());
  }

  /** @param {Map<number, Error>} problems by index of the query */
  show(problems = this.problems) {
    const { queries } = this.state;
    this.problems = problems;
    byId("queries").hidden = queries.length < 2;
    fill(byId("queries"), queries.length < 2 ? [] : queries.map((_one, i) => this._line(i)));
    /** @type {HTMLButtonElement} */ (byId("add-query")).disabled = queries.length >= QUERIES_MOST || queries.some((one) => !one.q);
  }

  /** @param {number} i */
  _line(i) {
    const { queries, edited } = this.state, one = queries[i], name = letter(i), problem = this.problems.get(i);
    const button = (/** @type {string} */ text, /** @type {Record<string, any>} */ more) => el("button", { type: "button", class: "plain", "data-key": `${text} ${i}`, text, ...more });
    return el("li", { class: `query-line${one.hidden ? " off" : ""}` }, el("strong", { text: name }),
      el("button", { type: "button", class: "link mono", "data-key": `edit ${i}`, "aria-pressed": String(i === edited), title: `Edit ${name}`, text: one.q || "new query", onclick: () => this.actions.edit(i) }),
      el("span", { class: "faint", text: one.lang === "promql" ? "PromQL" : "Artimon" }),
      button("Hide", { "aria-label": `Hide ${name}`, "aria-pressed": String(one.hidden), onclick: () => { one.hidden = !one.hidden; this.actions.changed(); } }),
      button("Remove", { "aria-label": `Remove ${name}`, onclick: () => this._remove(i) }),
      problem ? el("p", { class: "problem", role: "alert", text: problem.message }) : null);
  }

  _add() {
    const { queries, lang } = this.state;
    this.actions.edit(queries.push({ q: "", lang, hidden: false }) - 1);
  }

  /** @param {number} i */
  _remove(i) {
    const { state } = this;
    state.queries.splice(i, 1);
    this.problems = new Map();
    if (state.edited > i || state.edited === state.queries.length) state.edited -= 1;
    this.actions.edit(state.edited);
    this.actions.changed();
  }
}
