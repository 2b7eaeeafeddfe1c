// Completions at the caret: names, labels and values from the API, functions and methods of the language.

import { ask } from "./api.js";
import { FUNCTIONS, METHODS, scan } from "./language.js";

const LISTED = 50;

/**
 * @typedef {object} Suggestion
 * @property {string} text text to insert
 * @property {string} about
 *
 * @typedef {object} Context
 * @property {"name"|"label"|"value"|"method"|"function"|"none"} kind
 * @property {string} word the part written so far
 * @property {number} start index of its first character
 * @property {string} label of a value
 * @property {string} outer quote around the enclosing text
 */

/**
 * Returns the kind of word at `caret`.
 * @param {string} text
 * @param {number} caret
 * @returns {Context}
 */
export function contextAt(text, caret) {
  const before = text.slice(0, caret);
  const { openText } = scan(before);
  if (openText >= 0) return { ...inText(before, openText, caret), outer: before[openText] };
  const method = /\.\s*([a-z]*)$/.exec(before);
  if (method && !/\d\.[a-z]*$/.test(before)) return { kind: "method", word: method[1], start: caret - method[1].length, label: "", outer: "" };
  const name = /(^|[\s(,&|+\-*/~<>=])([a-z]+)$/.exec(before);
  if (name) return { kind: "function", word: name[2], start: caret - name[2].length, label: "", outer: "" };
  return { kind: before.trim() ? "none" : "function", word: "", start: caret, label: "", outer: "" };
}

/** @param {string} before @param {number} open start of the text @param {number} caret @returns {Context} */
function inText(before, open, caret) {
  const inside = before.slice(open + 1), head = before.slice(0, open);
  if (/(fetch|samples|absent)\s*\(\s*$/.test(head)) return inSelector(inside, caret);
  if (/(by|without|on|ignoring|group_left|group_right)\s*=\s*\[[^\]]*$/.test(head)) {
    return { kind: "label", word: inside, start: caret - inside.length, label: "", outer: "" };
  }
  return { kind: "none", word: "", start: caret, label: "", outer: "" };
}

/** @param {string} inside a selector up to the caret @param {number} caret @returns {Context} */
function inSelector(inside, caret) {
  const brace = inside.indexOf("{");
  if (brace < 0) return { kind: "name", word: inside, start: caret - inside.length, label: "", outer: "" };
  const value = /([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*\\?(["'])((?:(?!\2)[^\\]|\\.)*)$/.exec(inside);
  if (value) return { kind: "value", word: value[3], start: caret - value[3].length, label: value[1], outer: "" };
  const label = /[{,]\s*(\w*)$/.exec(inside);
  if (label) return { kind: "label", word: label[1], start: caret - label[1].length, label: "", outer: "" };
  return { kind: "none", word: "", start: caret, label: "", outer: "" };
}

/**
 * Returns the completions, sorted.
 * @param {Context} context
 * @param {AbortSignal} signal
 * @returns {Promise<Suggestion[]>}
 */
export async function suggest(context, signal) {
  const { kind, word } = context;
  if (kind === "method") return fixed(METHODS, word, "(");
  if (kind === "function") return fixed(FUNCTIONS, word, "(");
  if (kind === "name") return plain((await ask("names", { prefix: word, limit: LISTED }, signal)).names);
  if (kind === "label") {
    const labels = /** @type {string[]} */ ((await ask("labels", { limit: 1000 }, signal)).labels);
    return plain(labels.filter((label) => label.startsWith(word)).slice(0, LISTED));
  }
  if (kind === "value") return plain((await ask("label_values", { label: context.label, prefix: word, limit: LISTED }, signal)).values);
  return [];
}

/** @param {Record<string, string>} table @param {string} word @param {string} after */
function fixed(table, word, after) {
  return Object.entries(table).filter(([name]) => name.startsWith(word) && name !== word).map(([name, about]) => ({ text: name + after, about }));
}

/** @param {string[]} texts @returns {Suggestion[]} */
function plain(texts) {
  return texts.map((text) => ({ text, about: "" }));
}

/**
 * Returns `suggestion` escaped for its place: values twice, for the selector and for the quotes around it.
 * @param {Context} context
 * @param {Suggestion} suggestion
 */
export function written({ kind, outer }, { text }) {
  if (kind !== "value") return text;
  const selector = text.replace(/[\\"']/g, "\\$&").replace(/\n/g, "\\n").replace(/\r/g, "\\r");
  return selector.replace(/\\/g, "\\\\").replaceAll(outer, `\\${outer}`);
}
