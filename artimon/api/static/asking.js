// Query box, a plain one or the PromQL editor: runs the query, marks the place of errors, keeps a history of each language.

import { byId, el, fill } from "./dom.js";
import { Editor } from "./editor.js";
import { place, scan } from "./language.js";
import { keep, kept } from "./state.js";

const HISTORY_MOST = 50;
const TALLEST_PX = 260;

export class Asking {
  /** @param {(text: string) => void} run called with each query @param {() => void} edited called after each change of the text */
  constructor(run, edited) {
    this.run = run;
    this.edited = edited;
    this.box = /** @type {HTMLTextAreaElement} */ (byId("query"));
    this.backdrop = byId("backdrop");
    /** @type {Editor|null} in use if the language is PromQL */ this.editor = null;
    /** @type {Promise<Editor>|null} */ this.opening = null;
    this.lang = "artimon";
    /** @type {string[]} newest last */ this.history = past("history");
    this.back = 0;
    this.draft = "";
    /** @type {{start: number, end: number}|null} */ this.wrong = null;
    this.box.addEventListener("input", () => this._edited());
    this.box.addEventListener("scroll", () => { this.backdrop.scrollTop = this.box.scrollTop; });
    this.box.addEventListener("keydown", (event) => this._key(event));
    byId("run").addEventListener("click", () => this.submit());
    addEventListener("resize", () => this._grow());
  }

  get text() {
    return this.editor ? this.editor.text : this.box.value;
  }

  get _key_of_history() {
    return this.lang === "promql" ? "history.promql" : "history";
  }

  /**
   * Chooses the box of a language; that of PromQL is loaded first.
   * @param {string} lang
   */
  async speak(lang) {
    if (lang === this.lang) return;
    this.lang = lang;
    const promql = lang === "promql";
    byId("promql").hidden = !promql;
    /** @type {HTMLElement} */ (this.box.parentElement).hidden = promql;
    byId("range-note").hidden = true;
    this.accept();
    this.history = past(this._key_of_history);
    this.back = 0;
    this.editor = null;
    if (!promql) return;
    const on = { submit: () => this.submit(), step: (/** @type {1|-1} */ by) => this._step(by), edited: () => { this.wrong = null; this.edited(); } };
    const editor = await (this.opening ??= Editor.open(byId("promql"), on));
    if (this.lang === "promql") this.editor = editor;
  }

  focus() {
    if (this.editor) this.editor.focus();
    else this.box.focus();
  }

  /** Puts `text` in the box without running it. @param {string} text */
  write(text) {
    if (this.editor) return this.editor.write(text);
    this.box.value = text;
    this._edited();
  }

  /** Runs the query in the box. */
  submit() {
    const text = this.text.trim() ? this.text : "";
    if (text && this.history.at(-1) !== text) {
      this.history = [...this.history.filter((one) => one !== text), text].slice(-HISTORY_MOST);
      keep(this._key_of_history, JSON.stringify(this.history));
    }
    this.back = 0;
    this.run(text);
  }

  /**
   * Shows an error, with its place underlined in the box and in the copy of the text below it.
   * @param {import("./api.js").ApiError} error
   * @param {string} text the query
   * @param {number} shift characters that the page put before it
   * @param {(() => void)|null} [insist] runs a query that costs too much nevertheless
   */
  refuse(error, text, shift, insist = null) {
    const at = error.position === null ? null : place(text, error.position, error.length, shift);
    const children = at ? [snippet(text, at)] : [];
    const again = insist ? [el("button", { type: "button", id: "insist", onclick: insist, text: "Run it within the hard limits" })] : [];
    fill(byId("error"), [...children, el("p", { text: error.message }), ...again]);
    this.box.setAttribute("aria-invalid", "true");
    if (this.text !== text || !at) return;
    this.wrong = at;
    this._underline();
    if (document.activeElement === this.box) this.box.setSelectionRange(at.start, at.end);
  }

  /** Removes the error. */
  accept() {
    if (!byId("error").hasChildNodes() && !this.wrong) return;
    fill(byId("error"), []);
    this.box.removeAttribute("aria-invalid");
    this.wrong = null;
    this._underline();
  }

  _edited() {
    this.wrong = null;
    this._underline();
    this._grow();
    byId("range-note").hidden = !scan(this.text).timed;
    this.edited();
  }

  /** Selects a place of `text`, if it is still in the box. @param {string} text @param {{start: number, end: number}} at */
  select(text, at) {
    if (this.text !== text) return;
    this.focus();
    if (this.editor) this.editor.select(at);
    else this.box.setSelectionRange(at.start, at.end);
  }

  _underline() {
    const { text, wrong } = this;
    if (!wrong) return fill(this.backdrop, []);
    const marked = el("span", { class: "wrong", text: text.slice(wrong.start, wrong.end) || " " });
    fill(this.backdrop, [document.createTextNode(text.slice(0, wrong.start)), marked, document.createTextNode(text.slice(wrong.end))]);
    this.backdrop.scrollTop = this.box.scrollTop;
  }

  _grow() {
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(TALLEST_PX, this.box.scrollHeight + 2)}px`;
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.defaultPrevented || event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.submit();
    } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      this._step(event.key === "ArrowUp" ? 1 : -1);
    }
  }

  /** @param {1|-1} by back or forth in the history */
  _step(by) {
    const same = this.history.at(-1) === this.text && this.back === 0 && by === 1 ? 1 : 0;
    const back = Math.max(0, Math.min(this.history.length, this.back + by + same));
    if (back === this.back) return;
    if (this.back === 0) this.draft = this.text;
    this.back = back;
    this.write(back === 0 ? this.draft : this.history[this.history.length - back]);
  }
}

/** Formats the line of an error with carets under its place. @param {string} text @param {{start: number, end: number}} at */
function snippet(text, { start, end }) {
  const begin = text.lastIndexOf("\n", start - 1) + 1;
  const stop = text.indexOf("\n", start) < 0 ? text.length : text.indexOf("\n", start);
  const carets = "^".repeat(Math.max(1, Math.min(end, stop) - start));
  const under = [el("span", { class: "ghost", "aria-hidden": "true", text: text.slice(begin, start) }), el("span", { class: "carets", "aria-hidden": "true", text: carets })];
  return el("pre", { tabindex: "0", "aria-label": "Place of the error" }, `${text.slice(begin, stop)}\n`, ...under);
}

/** @param {string} key @returns {string[]} */
function past(key) {
  try {
    const found = JSON.parse(kept(key, "[]"));
    return Array.isArray(found) ? found.filter((one) => typeof one === "string").slice(-HISTORY_MOST) : [];
  } catch {
    return [];
  }
}
