// Dialog that saves the query as a panel of a dashboard, or writes it as an alert rule. Loaded when it is opened.

import { ApiError, ask, send, sendJson } from "./api.js";
import { obstacle } from "./dashboard_editor.js";
import { announce, byId, copyable, el, fill } from "./dom.js";

const NEW = "";
const KINDS = [["chart", "Chart"], ["value", "Value"], ["table", "Table"], ["bars", "Bars"], ["heatmap", "Heat map"], ["states", "States"]];
const MISSING = [["keep", "stay as it is"], ["resolve", "resolve"], ["fire", "fire"]];

/** @typedef {{q: string, lang: string, what: "panel"|"rule", name?: string, threshold?: string, hold?: string, missing?: string}} Saved */

/** Opens the dialog. @param {Saved} saved */
export async function showSave(saved) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("save"));
  const choice = (/** @type {"panel"|"rule"} */ what, /** @type {string} */ text) => el("label", {}, el("input", { type: "radio", name: "save-what", value: what, checked: what === saved.what, onchange: () => show(what) }), el("span", { text }));
  const body = el("div", { class: "action-form" });
  const show = (/** @type {"panel"|"rule"} */ what) => (what === "panel" ? showPanel(body, saved, dialog) : showRule(body, saved, dialog));
  fill(dialog, [el("h2", { id: "save-title", text: "Save the query" }), el("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "Query", text: saved.q }),
    el("fieldset", { class: "segments" }, el("legend", { class: "unseen", text: "Save as" }), choice("panel", "Dashboard panel"), choice("rule", "Alert rule")), body]);
  dialog.showModal();
  await show(saved.what);
}

/** @param {string} name @param {Element} control */
const labelled = (name, control) => el("label", {}, name, control);

/** @param {string} id @param {string} value @param {Record<string, any>} [more] @returns {HTMLInputElement} */
const input = (id, value, more = {}) => /** @type {HTMLInputElement} */ (el("input", { id, value, maxlength: "200", autocomplete: "off", spellcheck: "false", required: true, ...more }));

/** @param {string} id @param {string[][]} options values and texts @param {string} [chosen] @returns {HTMLSelectElement} */
const select = (id, options, chosen) => /** @type {HTMLSelectElement} */ (el("select", { id }, ...options.map(([value, text]) => el("option", { value, text, selected: value === chosen }))));

/**
 * Shows a form; its problem is told above the buttons.
 * @param {HTMLElement} body @param {HTMLDialogElement} dialog @param {Node[]} fields @param {string} text of the button @param {() => Promise<void>} act
 * @returns {HTMLElement} the button
 */
function form(body, dialog, fields, text, act) {
  const problem = el("p", { id: "save-problem", class: "problem", role: "alert" }), button = el("button", { type: "submit", class: "primary", text });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      await act();
    } catch (error) {
      problem.textContent = /** @type {Error} */ (error).message;
    }
  };
  const buttons = el("div", { class: "action-buttons" }, button, el("button", { type: "button", text: "Close", onclick: () => dialog.close() }));
  fill(body, [el("form", { class: "action-form", onsubmit: submit }, ...fields, problem, buttons)]);
  return button;
}

/** @param {HTMLElement} body @param {Saved} saved @param {HTMLDialogElement} dialog */
async function showPanel(body, { q, lang }, dialog) {
  const board = select("save-board", [[NEW, "New dashboard"]]), name = input("save-name", "", { placeholder: "web-shop", maxlength: "64" });
  const title = input("save-panel", ""), kind = select("save-kind", KINDS), told = el("p", { class: "faint", role: "status" });
  const named = labelled("Name of the new dashboard", name);
  /** ETag of the chosen dashboard when it was chosen: the panel is added to that state. */
  let etag = "";
  const choose = async () => {
    named.hidden = board.value !== NEW;
    name.required = !named.hidden;
    etag = board.value === NEW ? "" : (await ask(`dashboards/${encodeURIComponent(board.value)}`, {})).etag;
  };
  const save = async () => {
    const route = encodeURIComponent(board.value || name.value);
    const content = { body: JSON.stringify({ q, lang, title: title.value, kind: kind.value }), headers: { "content-type": "application/json", ...(etag ? { "if-match": `"${etag}"` } : { "if-none-match": "*" }) } };
    try {
      await send("POST", `dashboards/${route}/panels`, {}, content);
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) await choose(); // saving again adds it to the present text
      throw error;
    }
    fill(told, ["Saved. ", el("a", { href: `dashboards?name=${route}`, text: "Open the dashboard" })]);
    announce("Saved");
    await choose();
  };
  board.addEventListener("change", () => void choose());
  const button = form(body, dialog, [labelled("Dashboard", board), named, labelled("Title of the panel", title), labelled("Kind", kind), told], "Save", save);
  title.focus();
  try {
    const { dashboards, writable } = await ask("dashboards", {});
    board.append(...dashboards.filter((/** @type {any} */ one) => !one.problem).map((/** @type {any} */ one) => el("option", { value: one.name, text: one.title })));
    told.textContent = await obstacle(writable);
  } catch (error) {
    told.textContent = /** @type {Error} */ (error).message;
  }
  if (told.textContent) button.setAttribute("disabled", "");
}

/** @param {HTMLElement} body @param {Saved} saved @param {HTMLDialogElement} dialog */
async function showRule(body, saved, dialog) {
  const { q, lang } = saved, promql = lang === "promql";
  const name = input("save-rule", saved.name ?? "", { placeholder: "too-many-errors", maxlength: "100" });
  const threshold = input("save-threshold", saved.threshold ?? "", { placeholder: promql ? "> 5, or nothing: each series of the answer is an alert" : "> 5", required: !promql });
  const hold = input("save-hold", saved.hold ?? "5m", { size: "6" }), missing = select("save-missing", MISSING, saved.missing);
  const text = el("div", { role: "status" });
  const write = async () => {
    const rule = { q, lang, name: name.value, threshold: threshold.value, for: hold.value, missing: missing.value };
    const found = await sendJson("POST", "alerts/draft", rule);
    fill(text, [el("p", { class: "faint" }, "Write this into the file ", el("code", { text: found.file }), " of the folder of rules (", el("code", { text: "alerts/rules" }), " in the data of a stack on one machine). The engine reads it within a minute; the ", el("a", { href: "alerts", text: "alerts" }), " show it."), ...copyable(found.text, "rule")]);
  };
  const fields = [labelled("Name", name), labelled("Alert if the value is", threshold), labelled("for", hold), labelled("Without data it shall", missing), text];
  form(body, dialog, fields, "Write the rule", write);
  name.focus();
  if (saved.name) await write().catch(() => undefined); // the button tells why not
}
