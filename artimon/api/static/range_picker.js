// Control of the time range, the same on every page: offered ranges, free text, both ends in a zone, and keys that move and zoom.

import { byId, el, fill } from "./dom.js";
import { rangeLabel, setZone, zone } from "./format.js";
import { between, isZone, normalized, OFFERED, shifted, spanOf, timeText, zoomed } from "./time_range.js";

const ZONES = ["UTC", ...Intl.supportedValuesOf("timeZone")];
const HINT = "Write 30d, now-30d, or FROM to TO such as now-60d to now-30d or 2026-11-01 to 2026-11-02 08:00.";

export class RangePicker {
  /**
   * @param {HTMLElement} place
   * @param {{range: string, zone: string}} now
   * @param {(now: {range: string, zone: string}) => void} choose called with each change
   */
  constructor(place, now, choose) {
    this.choose = choose;
    this.range = now.range;
    const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {string} */ key) =>
      el("button", { type: "button", class: "plain", "aria-label": `${label} (${key})`, title: `${label} (${key})`, text, onclick: () => this.press(key) });
    const radio = ([value, text]) => el("label", {}, el("input", { type: "radio", name: "range", value }), el("span", { text }));
    const offered = el("fieldset", { class: "segments", id: "range", onchange: (/** @type {Event} */ event) => this.set(/** @type {HTMLInputElement} */ (event.target).value) }, el("legend", { class: "unseen", text: "Time range" }), ...OFFERED.map(radio));
    this.text = el("span", { id: "range-text" });
    this.menu = el("details", { class: "range-menu", ontoggle: () => this._fill() }, el("summary", { title: "Any range, and the time zone" }, this.text), this._form());
    this.menu.addEventListener("keydown", (event) => { if (event.key === "Escape") this._close(); });
    fill(place, [button("‹", "Earlier", ","), offered, this.menu, button("›", "Later", "."), button("−", "Zoom out", "-")]);
    place.classList.add("range-picker");
    this.adopt(now);
  }

  /** Shows a range that came from elsewhere, such as the address. @param {{range: string, zone: string}} now */
  adopt({ range, zone: wanted }) {
    this.range = range;
    setZone(wanted);
    for (const one of document.querySelectorAll('input[name="range"]')) /** @type {HTMLInputElement} */ (one).checked = /** @type {HTMLInputElement} */ (one).value === range;
    const { start_ms, end_ms } = spanOf(range, Date.now());
    this.text.textContent = rangeLabel(range, start_ms, end_ms);
  }

  /** @param {string} range in the form of the address */
  set(range) {
    this.adopt({ range, zone: zone() });
    this.choose({ range, zone: zone() });
  }

  /** Chooses what lies between two times, such as a zoomed part of a chart. @param {number} start_ms @param {number} end_ms */
  between(start_ms, end_ms) {
    this.set(between(start_ms, end_ms, Date.now()));
  }

  /** Moves or zooms by a key. @param {string} key @returns {boolean} true if it is one of the picker's */
  press(key) {
    const moves = /** @type {Record<string, () => string>} */ ({
      ",": () => shifted(this.range, -0.5, Date.now()), ".": () => shifted(this.range, 0.5, Date.now()),
      "-": () => zoomed(this.range, 2, Date.now()), "+": () => zoomed(this.range, 0.5, Date.now()),
    });
    if (!(key in moves)) return false;
    this.set(moves[key]());
    return true;
  }

  _form() {
    const field = (/** @type {string} */ id, /** @type {string} */ name, more = {}) => el("label", {}, name, el("input", { id, autocomplete: "off", spellcheck: "false", maxlength: "80", ...more }));
    const submit = (/** @type {Event} */ event, /** @type {() => string} */ text) => { event.preventDefault(); this._take(text()); };
    const value = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id)).value.trim();
    return el("div", { class: "range-form" },
      el("form", { onsubmit: (/** @type {Event} */ event) => submit(event, () => value("range-free")) }, field("range-free", "Range", { placeholder: "now-30d", "aria-describedby": "range-problem" }), el("button", { text: "Apply" })),
      el("form", { onsubmit: (/** @type {Event} */ event) => submit(event, () => `${value("range-from")} to ${value("range-to")}`) }, field("range-from", "From"), field("range-to", "To"), el("button", { text: "Apply" })),
      el("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this._setZone(value("range-zone")); } }, field("range-zone", "Zone", { list: "range-zones", placeholder: "local" }), el("datalist", { id: "range-zones" }), el("button", { text: "Apply" })),
      el("p", { id: "range-problem", class: "problem", role: "alert" }));
  }

  /** Fills the fields when the menu opens. */
  _fill() {
    if (!(/** @type {HTMLDetailsElement} */ (this.menu).open)) return;
    const { start_ms, end_ms } = spanOf(this.range, Date.now());
    const put = (/** @type {string} */ id, /** @type {string} */ text) => { /** @type {HTMLInputElement} */ (byId(id)).value = text; };
    put("range-free", this.range);
    put("range-from", timeText(start_ms, zone()));
    put("range-to", timeText(end_ms, zone()));
    put("range-zone", zone());
    byId("range-problem").textContent = "";
    if (!byId("range-zones").hasChildNodes()) fill(byId("range-zones"), ZONES.map((value) => el("option", { value })));
    byId("range-free").focus();
  }

  /** @param {string} text */
  _take(text) {
    const range = normalized(text, zone(), Date.now());
    byId("range-problem").textContent = range ? "" : `${text || "nothing"} is not a range of at least a minute. ${HINT}`;
    if (!range) return;
    this._close();
    this.set(range);
  }

  /** @param {string} wanted */
  _setZone(wanted) {
    const found = wanted === "local" ? "" : wanted;
    byId("range-problem").textContent = isZone(found) ? "" : `${wanted} is not a time zone: write UTC, local or such as Europe/Paris.`;
    if (!isZone(found)) return;
    this._close();
    setZone(found);
    this.set(this.range);
  }

  _close() {
    /** @type {HTMLDetailsElement} */ (this.menu).open = false;
    /** @type {HTMLElement} */ (this.menu.firstElementChild).focus();
  }
}
