// Small DOM helpers. Names and labels are untrusted: texts are set only through textContent.

/**
 * Returns the element of the page with this id.
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
 * Creates an element. `props`: `class`, `text`, `onclick` and the like as listeners, `hidden`/`disabled` as booleans,
 * all others as attributes (null: left out).
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
 * Replaces the children of `parent`; keeps the scroll position, and the focus on the element with the same data-key.
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
 * Returns a debounced function: it calls `work` once, `wait_ms` after its last call, unless `cancel` comes before.
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
 * Announces a text to screen readers once (aria-live polite).
 * @param {string} text
 */
export function announce(text) {
  byId("live").textContent = text;
}

/**
 * Creates a mark of a state, with shape and colour; `word` is for screen readers if there is no text beside it.
 * @param {"good"|"warn"|"bad"|"idle"} state
 * @param {string} [word]
 * @returns {HTMLElement}
 */
export function mark(state, word = "") {
  return el("span", { class: `mark ${state}` }, word ? el("span", { class: "unseen", text: word }) : null);
}

/**
 * Copies `text` to the clipboard and confirms it on the button for a moment.
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

/** Creates a code block with a button that copies it. @param {string} text @param {string} what */
export function copyable(text, what) {
  const button = el("button", { type: "button", "data-key": `copy ${what}`, text: `Copy ${what}` });
  button.addEventListener("click", () => void copy(button, text));
  return [el("pre", { class: "code", tabindex: "0", role: "region", "aria-label": what, text }), button];
}
