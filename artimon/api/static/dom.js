// Small helpers around the DOM. Names and labels are untrusted: text only ever enters through textContent.

/**
 * The element of the page with this id.
 * @template {HTMLElement} T
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return /** @type {T} */ (found);
}

/**
 * A new element. `props`: `class`, `text`, `onclick` and the like as listeners, `hidden`/`disabled` as booleans, all else
 * as attributes (null leaves one out).
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/**
 * Replace the children of `parent`; the keyboard's focus stays on the element with the same data-key, and the scroll
 * position stays.
 * @param {HTMLElement} parent
 * @param {Node[]} children
 */
export function fill(parent, children) {
  const active = /** @type {HTMLElement|null} */ (document.activeElement);
  const key = active && parent.contains(active) ? active.dataset.key : undefined;
  const top = parent.scrollTop;
  parent.replaceChildren(...children);
  parent.scrollTop = top;
  if (key === undefined) return;
  for (const candidate of parent.querySelectorAll("[data-key]")) {
    const one = /** @type {HTMLElement} */ (candidate);
    if (one.dataset.key === key) return one.focus({ preventScroll: true });
  }
}

/**
 * A function that calls `work` once, `wait_ms` after its last call, unless `cancel` comes before.
 * @template {any[]} A
 * @param {(...args: A) => void} work
 * @param {number} wait_ms
 * @returns {((...args: A) => void) & {cancel: () => void}}
 */
export function later(work, wait_ms) {
  /** @type {number|undefined} */
  let timer;
  const call = (/** @type {A} */ ...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), wait_ms);
  };
  return Object.assign(call, { cancel: () => clearTimeout(timer) });
}

/**
 * Say something to screen readers once, politely.
 * @param {string} text
 */
export function announce(text) {
  byId("live").textContent = text;
}

/**
 * A mark of a state: a shape as well as a colour, with its word for screen readers where no text stands beside it.
 * @param {"good"|"warn"|"bad"|"idle"} state
 * @param {string} [word]
 * @returns {HTMLElement}
 */
export function mark(state, word = "") {
  return el("span", { class: `mark ${state}` }, word ? el("span", { class: "unseen", text: word }) : null);
}

/**
 * Put `text` on the clipboard and say so on the button for a moment.
 * @param {HTMLElement} button
 * @param {string} text
 */
export async function copy(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    announce("Copied");
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}
