// Dialog that makes a silence, with a preview of what it hides, or acknowledges an alert.

import { ask, sendJson } from "./api.js";
import { byId, el, fill, later } from "./dom.js";
import { plural } from "./format.js";
import { keep, kept } from "./state.js";

const PREVIEWED = 20;

/** @typedef {{what: "silence"|"acknowledge", matchers: string, alerts: string[], needs_author: boolean, done: (text: string) => void}} Action */

/** Opens the dialog. @param {Action} action */
export function showAction(action) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("action")), silences = action.what === "silence";
  byId("action-title").textContent = silences ? "New silence" : "Acknowledge";
  byId("action-send").textContent = silences ? "Silence" : "Acknowledge";
  byId("matchers-field").hidden = !silences;
  byId("author-field").hidden = !action.needs_author;
  byId("force-field").hidden = true;
  byId("action-problem").textContent = "";
  input("matchers").value = action.matchers;
  input("force").checked = false;
  input("author").value = kept("author", "");
  fill(byId("preview"), []);
  const look = later(() => void preview(), 300);
  input("matchers").oninput = look;
  byId("action-cancel").onclick = () => dialog.close();
  byId("action-form").onsubmit = (event) => {
    event.preventDefault();
    void submit(action, dialog);
  };
  if (silences) void preview();
  dialog.showModal();
}

/** @param {string} id @returns {HTMLInputElement} */
function input(id) {
  return /** @type {HTMLInputElement} */ (byId(id));
}

/** Shows the alerts that a silence would hide. */
async function preview() {
  const filter = input("matchers").value.trim();
  if (!filter) return fill(byId("preview"), []);
  try {
    const { alerts } = await ask("alerts/matching", { filter });
    if (filter !== input("matchers").value.trim()) return;
    const lines = alerts.slice(0, PREVIEWED).map((/** @type {{labels: Record<string, string>}} */ one) => el("li", { text: textOf(one.labels) }));
    const more = alerts.length > PREVIEWED ? [el("li", { text: `and ${alerts.length - PREVIEWED} more` })] : [];
    fill(byId("preview"), [el("p", { text: alerts.length ? `It hides ${plural(alerts.length, "alert")} now:` : "It hides no alert now." }), el("ul", {}, ...lines, ...more)]);
  } catch (problem) {
    fill(byId("preview"), [el("p", { class: "problem", text: /** @type {Error} */ (problem).message })]);
  }
}

/** @param {Record<string, string>} labels */
function textOf({ alertname = "", ...labels }) {
  return `${alertname} ${Object.entries(labels).map(([name, value]) => `${name}=${value}`).join(" ")}`;
}

/** @param {Action} action @param {HTMLDialogElement} dialog */
async function submit(action, dialog) {
  const said = { duration: input("duration").value.trim(), comment: input("comment").value, author: input("author").value };
  if (action.needs_author) keep("author", said.author);
  try {
    if (action.what === "silence") await sendJson("POST", "alerts/silences", { ...said, matchers: input("matchers").value, force: input("force").checked });
    else await sendJson("POST", "alerts/acknowledgements", { ...said, alerts: action.alerts });
    dialog.close();
    action.done(action.what === "silence" ? "The silence is in force" : "Acknowledged");
  } catch (problem) {
    const { message } = /** @type {Error} */ (problem);
    byId("action-problem").textContent = message;
    byId("force-field").hidden = !message.includes("force");
  }
}
