// What the page must know of the query language: where strings and brackets are, and what may be called.

export { FUNCTIONS, METHODS } from "./functions.js"; // made by the server of what the language has

const TIMES = /^\.\s*(range|between|at)\s*\(/;
const PREFIX = "(\n";

/**
 * @typedef {object} Scan
 * @property {boolean} balanced every bracket and text is closed
 * @property {boolean} timed the text says its own range
 * @property {number} openText where the text that holds the end begins (index of its quote), -1 outside of texts
 */

/**
 * A look at a query from its begin to its end, the same way as the server's first pass.
 * @param {string} text
 * @returns {Scan}
 */
export function scan(text) {
  /** @type {string[]} */
  const open = [];
  let timed = false;
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === "'" || char === '"') {
      const end = closing(text, at);
      if (end < 0) return { balanced: false, timed, openText: at };
      at = end;
    } else if (char === "#") {
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end;
    } else if ("([{".includes(char)) {
      open.push(char);
    } else if (")]}".includes(char)) {
      if (open.pop() !== "([{"[")]}".indexOf(char)]) return { balanced: false, timed, openText: -1 };
    } else if (char === "." && TIMES.test(text.slice(at, at + 40))) {
      timed = true;
    }
  }
  return { balanced: open.length === 0, timed, openText: -1 };
}

/** @param {string} text @param {number} start of a quote @returns {number} where its text ends, -1 if it does not */
function closing(text, start) {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === text[start]) return at;
  }
  return -1;
}

/**
 * What is asked: the text, with the page's range unless it says a time itself.
 * @param {string} text
 * @param {string} range such as "1h"
 * @returns {{q: string, shift: number}} `shift`: characters before the text
 */
export function withRange(text, range) {
  const { balanced, timed } = scan(text);
  if (timed || !balanced || !text.trim()) return { q: text, shift: 0 };
  return { q: `${PREFIX}${text}\n).range("${range}")`, shift: PREFIX.length };
}

/**
 * The server counts characters, the browser UTF-16 units: the place of an error in the text of the box.
 * @param {string} text
 * @param {number} position in characters of what was sent
 * @param {number|null} length
 * @param {number} shift
 * @returns {{start: number, end: number}}
 */
export function place(text, position, length, shift) {
  const characters = Array.from(text);
  const start = Math.min(Math.max(0, position - shift), characters.length);
  const end = Math.min(characters.length, start + Math.max(1, length ?? 1));
  const units = (/** @type {number} */ count) => characters.slice(0, count).join("").length;
  return { start: units(start), end: units(end) };
}

/** @param {string} selector @returns {string} fetch('…') */
export function fetchText(selector) {
  const text = selector.replace(/\\/g, "\\\\").replace(/'/g, "\\'").replace(/\n/g, "\\n").replace(/\r/g, "\\r");
  return `fetch('${text}')`;
}
