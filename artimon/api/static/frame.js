// Frame of every page: name, links to the pages, theme, user and keyboard help. Every page has an empty
// <header class="top"> (with <nav class="pulse"> and <div class="tools"> if it adds to them) and <div id="live">.

import { ask } from "./api.js";
import { byId, el } from "./dom.js";
import { keep, kept } from "./state.js";

/** Pages by path, relative so that a proxy may add a prefix. */
const PAGES = [
  ["./", "Explore"],
  ["dashboards", "Dashboards"],
  ["alerts", "Alerts"],
  ["fleet", "Fleet"],
  ["variables", "Variables"],
  ["cardinality", "Cardinality"],
  ["queries", "Running queries"],
  ["start", "First steps"],
];
const THEMES = [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]];

/** Fills the header. @param {string} current path of this page in PAGES */
export function buildFrame(current) {
  const header = /** @type {HTMLElement} */ (document.querySelector("header.top"));
  const tools = header.querySelector(".tools") ?? header.appendChild(el("div", { class: "tools" }));
  const brand = el("h1", { class: "brand", text: "Artimon" });
  header.prepend(brand, ...(PAGES.length > 1 ? [links(current)] : []));
  tools.append(themes(), account(), el("button", { type: "button", id: "help-button", class: "plain", "aria-label": "Keyboard help", title: "Keyboard help (?)", text: "?", onclick: showHelp }));
  void showAccount();
}

/** Calls `recolour` when the colours of the page have changed. @param {() => void} recolour */
export function onTheme(recolour) {
  byId("theme").addEventListener("change", recolour);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
}

/** @param {string} current */
function links(current) {
  const one = ([path, name]) => el("a", { href: path, text: name, "aria-current": path === current ? "page" : null });
  return el("nav", { class: "pages-nav", "aria-label": "Pages" }, ...PAGES.map(one));
}

function themes() {
  const chosen = kept("theme", "auto");
  const choices = THEMES.map(([value, name]) => el("label", {}, el("input", { type: "radio", name: "theme", value, checked: value === chosen }), el("span", { text: name })));
  return el("fieldset", { class: "segments", id: "theme", onchange: setTheme }, el("legend", { class: "unseen", text: "Theme" }), ...choices);
}

/** @param {Event} event */
function setTheme(event) {
  const theme = /** @type {HTMLInputElement} */ (event.target).value;
  keep("theme", theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function account() {
  return el("form", { id: "account", method: "post", action: "logout", hidden: true });
}

/** Shows who is logged in; nothing if the API has no login. */
async function showAccount() {
  try {
    const found = await ask("whoami", {});
    if (!found.login) return;
    const limits = found.restricted ? ", sees a part of the series" : "";
    byId("account").replaceChildren(
      el("span", { class: "account-name", text: found.user, title: `role ${found.role}${limits}` }),
      el("button", { type: "submit", class: "plain", text: "Log out" }),
    );
    byId("account").hidden = false;
  } catch {
    // the parts of the page say that the API does not answer
  }
}

function showHelp() {
  /** @type {HTMLDialogElement} */ (byId("help")).showModal();
}
