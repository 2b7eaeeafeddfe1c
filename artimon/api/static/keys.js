// Keyboard shortcuts of the page. They are ignored while a text field has the focus.

import { byId } from "./dom.js";

const CHORD_MS = 1200;

/** @param {{view: (view: string) => void, refresh: () => void, ask: () => void, range: (key: string) => boolean}} actions */
export function listen(actions) {
  const help = /** @type {HTMLDialogElement} */ (byId("help"));
  let chord_ms = -Infinity;
  /** @type {Record<string, () => void>} */
  const keys = {
    "/": actions.ask,
    "?": () => help.showModal(),
    r: actions.refresh,
    g: () => { chord_ms = performance.now(); },
  };
  /** @type {Record<string, () => void>} */
  const places = {
    c: () => { actions.view("chart"); byId("chart").focus(); },
    t: () => { actions.view("table"); byId("table").focus(); },
    h: () => { actions.view("heat"); byId("tab-heat").focus(); },
    m: () => { actions.view("samples"); byId("samples").focus(); },
    x: () => { actions.view("explain"); byId("explain").focus(); },
    f: () => byId("find-text").focus(),
    a: () => go("alerts"), e: () => go("endpoints"), s: () => go("system"),
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || writes(event.target) || document.querySelector("dialog[open]")) return;
    const second = performance.now() - chord_ms < CHORD_MS;
    chord_ms = -Infinity;
    const action = (second ? places : keys)[event.key];
    if (!action && !actions.range(event.key)) return;
    event.preventDefault();
    action?.();
  });
}

/** @param {EventTarget|null} target @returns {boolean} true if keys are text input there */
function writes(target) {
  return target instanceof HTMLElement && target.matches('textarea, select, input:not([type="radio"]), #promql');
}

/** @param {string} id of a panel */
function go(id) {
  const panel = byId(id);
  panel.tabIndex = -1;
  panel.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "start" });
}
