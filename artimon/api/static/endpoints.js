// Panel of the polled processes, those that are down first, in pages and with a filter.

import { byId, el, fill, later, mark } from "./dom.js";
import { duration, moment, plural, quote } from "./format.js";
import { fetchText } from "./language.js";

const LISTED = 100;
const WAIT_MS = 180;

/**
 * @typedef {{context: string, instance: string, host: string, labels: Record<string, string>, up: boolean|null, since_ms: number|null, time_ms: number}} Endpoint
 * @typedef {{endpoints: Endpoint[], found: number, down: number, unknown: number, up: number}} Found
 */

export class Endpoints {
  /**
   * @param {(text: string) => void} use puts a query in the box and runs it
   * @param {() => void} load asks for the page that `parameters` describe
   */
  constructor(use, load) {
    this.use = use;
    this.load = load;
    this.offset = 0;
    this.found = 0;
    this.text = /** @type {HTMLInputElement} */ (byId("endpoints-text"));
    this.state = /** @type {HTMLSelectElement} */ (byId("endpoints-state"));
    this.text.addEventListener("input", later(() => this._turn(0), WAIT_MS));
    this.state.addEventListener("change", () => this._turn(0));
    byId("endpoints-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this._turn(0);
    });
    byId("endpoints-back").addEventListener("click", () => this._turn(this.offset - LISTED));
    byId("endpoints-next").addEventListener("click", () => this._turn(this.offset + LISTED));
  }

  /** Parameters of /api/endpoints. */
  get parameters() {
    return { filter: this.text.value.trim(), state: this.state.value, offset: this.offset, limit: LISTED };
  }

  /** Goes to another page. @param {number} offset */
  _turn(offset) {
    this.offset = Math.max(0, offset);
    byId("endpoints-body").scrollTop = 0;
    this.load();
  }

  /** @param {Found} answer of /api/endpoints */
  show({ endpoints, found, down, unknown, up }) {
    // the list became shorter than the page: its last page is shown
    if (!endpoints.length && found) return this._turn(LISTED * Math.floor((found - 1) / LISTED));
    const chip = byId("down-chip");
    chip.hidden = !down;
    fill(chip, down ? [mark("bad"), el("span", { text: `${count(down)} down` })] : []);
    fill(byId("endpoints-counts"), down + unknown + up ? counts(down, unknown, up) : []);
    this._pages(endpoints.length, found);
    if (endpoints.length) fill(byId("endpoints-body"), [el("ul", { class: "endpoints" }, ...endpoints.map((one) => line(one, this.use)))]);
    else fill(byId("endpoints-body"), [el("p", { class: "faint", text: down + unknown + up ? "No endpoint fits." : "No process has registered and been polled yet." })]);
  }

  /** @param {number} shown @param {number} found */
  _pages(shown, found) {
    byId("endpoints-pages").hidden = found <= LISTED;
    const back = /** @type {HTMLButtonElement} */ (byId("endpoints-back")), next = /** @type {HTMLButtonElement} */ (byId("endpoints-next"));
    back.disabled = this.offset === 0;
    next.disabled = this.offset + shown >= found;
    byId("endpoints-range").textContent = `${count(this.offset + 1)} to ${count(this.offset + shown)} of ${count(found)}`;
  }
}

/** @param {number} down @param {number} unknown @param {number} up */
function counts(down, unknown, up) {
  const rest = [up ? `${count(up)} up` : "", unknown ? `${count(unknown)} unknown` : ""].filter(Boolean);
  const text = down ? [`${plural(down, "endpoint")} down`, ...rest].join(", ") : `${plural(up, "endpoint")} up, none down${unknown ? `, ${count(unknown)} unknown` : ""}`;
  return [mark(down ? "bad" : "good"), el("span", { text })];
}

/** @param {number} number */
function count(number) {
  return number.toLocaleString("en-GB");
}

/** @param {Endpoint} one @param {(text: string) => void} use */
function line(one, use) {
  const state = one.up === null ? "idle" : one.up ? "good" : "bad";
  const word = one.up === null ? "unknown" : one.up ? "up" : "down";
  const labels = { ...one.labels, context: one.context, instance: one.instance };
  const matchers = Object.entries(labels).filter(([, value]) => value).sort().map(([label, value]) => `${label}=${quote(value)}`);
  const query = fetchText(`artimon.endpoint.up{${matchers.join(",")}}`);
  const since = one.since_ms ? one.up ? ` ${duration(Date.now() - one.since_ms)}` : ` since ${moment(one.since_ms)}, ${duration(Date.now() - one.since_ms)}` : "";
  const key = matchers.join(",");
  return el("li", { class: `endpoint ${state}` }, mark(state),
    el("div", { class: "endpoint-name" },
      el("button", { type: "button", class: "link", "data-key": key, title: "Put its state in the query", text: one.context || "(no context)", onclick: () => use(query) }),
      el("span", { class: "faint", text: [one.instance, one.host].filter(Boolean).join(" on ") })),
    el("div", { class: "endpoint-state", title: one.since_ms ? new Date(one.since_ms).toISOString() : "" }, el("span", { class: "word", text: word }), el("span", { class: "faint", text: since })));
}
