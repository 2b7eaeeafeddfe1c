// Panel of the polled processes, those that are down first.

import { byId, el, fill, mark } from "./dom.js";
import { duration, moment, plural, quote } from "./format.js";
import { fetchText } from "./language.js";

const LISTED = 100;

/**
 * @typedef {{context: string, instance: string, host: string, labels: Record<string, string>, up: boolean|null, since_ms: number|null, time_ms: number}} Endpoint
 * @typedef {{endpoints: Endpoint[], down: number, truncated: boolean}} Endpoints
 */

/** @param {Endpoints} found of /api/endpoints @param {(text: string) => void} use */
export function showEndpoints({ endpoints, down, truncated }, use) {
  const chip = byId("down-chip");
  chip.hidden = !down;
  fill(chip, down ? [mark("bad"), el("span", { text: `${down} down` })] : []);
  if (!endpoints.length) return fill(byId("endpoints-body"), [el("p", { class: "faint", text: "No process has registered and been polled yet." })]);
  const up = endpoints.filter((one) => one.up === true).length;
  const head = el("p", { class: "panel-line" }, mark(down ? "bad" : "good"), el("span", { text: down ? `${plural(down, "endpoint")} down, ${up} up` : `${plural(up, "endpoint")} up, none down` }));
  const rows = endpoints.slice(0, LISTED).map((one) => line(one, use));
  const left = endpoints.length - LISTED;
  const more = left > 0 || truncated ? el("p", { class: "faint", text: left > 0 ? `${left} more${truncated ? ", and those the API left out" : ""}` : "The API left out some." }) : null;
  fill(byId("endpoints-body"), [head, el("ul", { class: "endpoints scroll", "aria-label": "Endpoints", tabindex: "0" }, ...rows), ...(more ? [more] : [])]);
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
