// User of the page, and the button that ends the session. Nothing is shown if the API has no login.

import { ask } from "./api.js";
import { byId, el } from "./dom.js";

/** Shows who is logged in. */
export async function showAccount() {
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
    // the panels say that the API does not answer
  }
}
