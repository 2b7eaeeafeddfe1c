// List of suggestions under the caret, controlled by the keyboard of the query box.

import { announce, byId, el, fill, later } from "./dom.js";
import { contextAt, suggest, written } from "./completion.js";

const WAIT_MS = 120;
/** Keys that move the caret away from the completed word. */
const LEAVES = ["ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"];

/** @typedef {import("./completion.js").Suggestion} Suggestion */

export class Suggestions {
  /** @param {import("./asking.js").Asking} asking */
  constructor(asking) {
    this.asking = asking;
    this.box = asking.box;
    this.list = byId("suggestions");
    /** @type {Suggestion[]} */ this.found = [];
    this.active = -1;
    this.abort = new AbortController();
    this.soon = later(() => this.open(false), WAIT_MS);
    this.box.addEventListener("input", (event) => (/** @type {InputEvent} */ (event).inputType ? this.soon() : this.close()));
    this.box.addEventListener("keydown", (event) => this._key(event), { capture: true });
    this.box.addEventListener("blur", () => this.close());
    this.box.addEventListener("click", () => this.close());
    this.list.addEventListener("mousedown", (event) => this._clicked(event));
  }

  /** Lists the completions at the caret. @param {boolean} asked by a key, so that the first one is selected */
  async open(asked) {
    this.soon.cancel();
    this.abort.abort();
    const mine = (this.abort = new AbortController());
    const { value, selectionStart } = this.box;
    const context = contextAt(value, selectionStart);
    if (!asked && context.kind === "function" && !context.word) return this.close();
    try {
      const found = await suggest(context, mine.signal);
      if (mine.signal.aborted || document.activeElement !== this.box || this.box.value !== value) return;
      this.context = context;
      this._show(found, asked);
    } catch {
      this.close(); // ignored: suggestions are optional
    }
  }

  /** Closes the list, and cancels one that is about to open. */
  close() {
    this.soon.cancel();
    this.abort.abort();
    this.found = [];
    this.active = -1;
    this.list.hidden = true;
    this.box.removeAttribute("aria-activedescendant");
  }

  /** @param {Suggestion[]} found @param {boolean} first */
  _show(found, first) {
    if (!found.length) return this.close();
    this.found = found;
    this.list.hidden = false;
    fill(this.list, found.map((one, i) => el("li", { role: "option", id: `suggestion-${i}`, "aria-selected": "false" },
      el("span", { text: one.text }), one.about ? el("span", { class: "about", text: one.about }) : null)));
    this._choose(first ? 0 : -1);
    this._put();
    announce(`${found.length} suggestions, arrow keys choose, Tab takes`);
  }

  /** Places the list under the caret, within the width of the box. */
  _put() {
    const probe = el("div", { class: "backdrop probe" });
    const spot = el("span", { text: "|" });
    probe.append(document.createTextNode(this.box.value.slice(0, this.context?.start ?? 0)), spot);
    this.asking.backdrop.after(probe);
    const top = spot.offsetTop - this.box.scrollTop + spot.offsetHeight + 6;
    const left = Math.max(0, Math.min(spot.offsetLeft, this.box.clientWidth - this.list.offsetWidth));
    probe.remove();
    this.list.style.top = `${Math.min(top, this.box.offsetHeight)}px`;
    this.list.style.left = `${left}px`;
  }

  /** @param {number} index -1: none */
  _choose(index) {
    this.list.children[this.active]?.setAttribute("aria-selected", "false");
    this.active = index;
    const chosen = this.list.children[index];
    if (!chosen) return this.box.removeAttribute("aria-activedescendant");
    chosen.setAttribute("aria-selected", "true");
    chosen.scrollIntoView({ block: "nearest" });
    this.box.setAttribute("aria-activedescendant", chosen.id);
  }

  /** @param {number} index */
  _take(index) {
    const { context } = this, chosen = this.found[index];
    if (!context || !chosen) return;
    const end = this.box.selectionStart, text = written(context, chosen);
    this.close();
    this.box.setRangeText(text, context.start, end, "end");
    this.box.dispatchEvent(new Event("input"));
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      void this.open(true);
      return;
    }
    const takes = !this.list.hidden && this.active >= 0;
    if (event.key === "Enter" && !event.shiftKey && !takes) return this.close(); // the query runs: nothing may cover its error
    if (LEAVES.includes(event.key) || (event.altKey && event.key.startsWith("Arrow"))) return this.close();
    if (this.list.hidden || event.altKey) return;
    const last = this.found.length - 1;
    /** @type {Record<string, () => void>} */
    const moves = {
      ArrowDown: () => this._choose(this.active >= last ? 0 : this.active + 1),
      ArrowUp: () => this._choose(this.active <= 0 ? last : this.active - 1),
      Escape: () => this.close(),
      Tab: () => this._take(Math.max(0, this.active)),
    };
    if (takes) moves.Enter = () => this._take(this.active);
    if (!(event.key in moves) || event.shiftKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  /** @param {MouseEvent} event */
  _clicked(event) {
    event.preventDefault(); // the box keeps the focus
    const item = /** @type {HTMLElement} */ (event.target).closest("li");
    if (item) this._take([...this.list.children].indexOf(item));
  }
}
