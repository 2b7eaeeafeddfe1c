// Line about the data behind an answer: the share of the expected points that are there, and the hosts that are silent.

import { ask } from "./api.js";
import { byId, el, fill, mark } from "./dom.js";

const AGAIN_MS = 60_000;
const WHOLE = 0.999;

export class CompletenessLine {
  constructor() {
    this.text = "";
    this.asked_ms = 0;
  }

  /** Asks for a new query, and again once a minute. @param {string} query in the language of Artimon, else "" */
  async show(query) {
    if (query === this.text && Date.now() - this.asked_ms < AGAIN_MS) return;
    if (query !== this.text) fill(byId("completeness"), []);
    this.text = query;
    this.asked_ms = Date.now();
    if (!query) return;
    try {
      const found = await ask("completeness", { q: query });
      if (query !== this.text) return;
      const state = !found.series || found.share >= WHOLE && !found.silent_hosts ? "good" : "warn";
      fill(byId("completeness"), found.series ? [mark(state), el("span", { text: found.text, title: listed(found) })] : []);
    } catch {
      fill(byId("completeness"), []); // the answer has its own error
    }
  }
}

/** @param {{silent: {host: string}[]}} found @returns {string} the silent hosts */
function listed({ silent }) {
  return silent.map((one) => one.host).join(", ");
}
