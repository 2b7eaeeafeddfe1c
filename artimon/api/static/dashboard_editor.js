// Editing of a dashboard as YAML, and its versions.

import { ApiError, ask, send } from "./api.js";
import { announce, el, fill } from "./dom.js";
import { moment } from "./format.js";

/** @typedef {{name: string, etag: string, text: string, writable: boolean, shipped: boolean}} Stored */

/** @param {Stored} stored @returns {Record<string, string>} condition of a change */
const condition = (stored) => (stored.etag ? { "if-match": `"${stored.etag}"` } : { "if-none-match": "*" });

/** Returns why nothing can be saved; "" if it can. @param {{writable: boolean}} stored */
export async function obstacle(stored) {
  if (!stored.writable) return "Read-only: the API was started without --dashboards FOLDER, so nothing can be saved here.";
  const { level } = await ask("whoami", {});
  return level === "viewer" ? "You may read this dashboard; to save it you need the level editor." : "";
}

/**
 * Shows the text. A new dashboard has no ETag, and its name is asked for.
 * @param {HTMLElement} place @param {Stored} stored
 * @param {{saved: (name: string) => void, close: () => void}} actions
 */
export async function edit(place, stored, actions) {
  const name = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "edit-name", value: stored.name, maxlength: "64", spellcheck: "false", disabled: Boolean(stored.etag) }));
  const area = /** @type {HTMLTextAreaElement} */ (el("textarea", { id: "edit-text", rows: "24", spellcheck: "false", "aria-label": "Text of the dashboard", "aria-describedby": "edit-problem" }));
  area.value = stored.text;
  const problem = el("div", { id: "edit-problem", class: "problem", role: "alert" });
  const told = el("p", { class: "faint" });
  const save = async () => {
    const found = await refusal(() => send("PUT", `dashboards/${encodeURIComponent(name.value)}`, {}, { body: area.value, headers: { "content-type": "application/yaml", ...condition(stored) } }));
    if (!found) return actions.saved(name.value);
    problem.textContent = found.message;
    place_caret(area, found.message);
    if (found.status === 409) problem.append(" ", el("button", { type: "button", class: "link", text: "Show the present text", onclick: () => void compare(problem, name.value) }));
  };
  const remove = async () => {
    const found = await refusal(() => send("DELETE", `dashboards/${encodeURIComponent(stored.name)}`, {}, { headers: condition(stored) }));
    if (found) problem.textContent = found.message;
    else actions.close();
  };
  const file = /** @type {HTMLInputElement} */ (el("input", { type: "file", accept: ".json,application/json", hidden: true, "aria-label": "File of Grafana", id: "edit-file" }));
  file.addEventListener("change", async () => {
    const body = await file.files?.[0]?.text();
    if (body === undefined) return;
    const found = await refusal(async () => {
      const { text, problems } = await send("POST", "dashboards/import", {}, { body, headers: { "content-type": "application/json" } });
      area.value = text;
      fill(problem, problems.length ? [el("p", { text: "Not converted:" }), el("ul", {}, ...problems.map((/** @type {string} */ one) => el("li", { text: one })))] : []);
    });
    if (found) problem.textContent = found.message;
  });
  const button = (/** @type {string} */ text, /** @type {() => void} */ onclick, look = "") => el("button", { type: "button", class: look, text, onclick });
  const saving = button("Save", () => void save(), "primary");
  const buttons = el("div", { class: "edit-buttons" }, saving, button("Close", actions.close), button("Import from Grafana…", () => file.click()), file, stored.etag && !stored.shipped ? button("Delete", () => void remove()) : null);
  fill(place, [el("section", { class: "card edit", "aria-label": "Edit" }, el("label", { class: "field" }, el("span", { class: "field-name", text: "Name" }), name), area, problem, told, buttons)]);
  area.addEventListener("keydown", (event) => {
    if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void save();
  });
  (stored.etag ? area : name).focus();
  try {
    told.textContent = await obstacle(stored);
    if (told.textContent) saving.setAttribute("disabled", "");
  } catch (error) {
    told.textContent = String(error);
  }
}

/** Runs a change; returns its error, or null. @param {() => Promise<any>} work @returns {Promise<ApiError|null>} */
async function refusal(work) {
  try {
    await work();
    return null;
  } catch (error) {
    return error instanceof ApiError ? error : new ApiError(String(error), -1);
  }
}

/** Selects the line that an error `NAME.yaml:LINE:COLUMN: …` names. @param {HTMLTextAreaElement} area @param {string} message */
function place_caret(area, message) {
  const found = /^[^:\s]+\.yaml:(\d+):(\d+): /.exec(message);
  if (!found) return;
  const lines = area.value.split("\n"), line = Math.min(lines.length, Number(found[1])) - 1;
  const start = lines.slice(0, line).join("\n").length + (line ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + lines[line].length);
  area.scrollTop = Math.max(0, (line - 5) * (area.scrollHeight / lines.length));
}

/** @param {HTMLElement} place @param {string} name */
async function compare(place, name) {
  const { text } = await ask(`dashboards/${encodeURIComponent(name)}`, {});
  fill(place, [el("p", { text: "Somebody saved this dashboard meanwhile. Copy your text, load the page again, and make the change there. The present text:" }), el("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": "Present text", text })]);
}

/**
 * Lists the versions with their differences from the present text.
 * @param {HTMLElement} place @param {Stored} stored
 * @param {{saved: (name: string) => void, close: () => void}} actions
 */
export async function showVersions(place, stored, actions) {
  const route = `dashboards/${encodeURIComponent(stored.name)}`;
  const problem = el("div", { class: "problem", role: "alert" });
  const shown = el("div", {});
  const list = el("ul", { class: "versions" });
  fill(place, [el("section", { class: "card", "aria-label": "Versions" }, el("h2", { text: "Versions" }), list, problem, shown, el("button", { type: "button", text: "Close", onclick: actions.close }))]);
  const told = async (/** @type {number} */ number) => {
    const found = await refusal(async () => {
      const { diff } = await ask(`${route}/diff`, { number });
      const lines = (diff || "No difference from the present text").split("\n");
      const look = (/** @type {string} */ line) => (/^\+(?!\+\+)/.test(line) ? "added" : /^-(?!--)/.test(line) ? "removed" : "");
      fill(shown, [el("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": `From version ${number} to the present text` }, ...lines.flatMap((/** @type {string} */ line) => [el("span", { class: look(line), text: line }), "\n"]))]);
      announce(`Difference of version ${number}`);
    });
    problem.textContent = found?.message ?? "";
  };
  const restore = async (/** @type {number} */ number) => {
    const found = await refusal(() => send("POST", `${route}/restore`, { number }, { headers: condition(stored) }));
    if (found) problem.textContent = found.message;
    else actions.saved(stored.name);
  };
  const found = await refusal(async () => {
    const { versions } = await ask(`${route}/versions`, {});
    const may = versions.length > 0 && (await obstacle(stored)) === "";
    if (!versions.length) list.append(el("li", { text: "No versions yet: each saving makes one." }));
    for (const one of versions) {
      const text = `Version ${one.number}, ${moment(one.time_ms)}, ${one.deleted ? "deleted by " : ""}${one.user || "changed in its file"}`;
      list.append(el("li", {}, el("span", { text }), one.deleted ? null : el("button", { type: "button", "aria-label": `Difference of version ${one.number}`, text: "Difference", onclick: () => void told(one.number) }),
        may && !one.deleted ? el("button", { type: "button", "aria-label": `Restore version ${one.number}`, text: "Restore", onclick: () => void restore(one.number) }) : null));
    }
  });
  if (found) problem.textContent = found.message;
}
