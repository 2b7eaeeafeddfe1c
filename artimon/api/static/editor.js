// PromQL editor: CodeMirror in a shadow root, so that its styles need no exception in the content security policy.

import { ask } from "./api.js";
import { isPlain } from "./promql.js";

const LISTED = 200;
const BUNDLE = "./vendor/codemirror/promql-parts.mjs";

/**
 * Answers the completion of the editor from the API.
 * @implements {Record<string, any>}
 */
export class CompletionClient {
  /** @param {string} [prefix] */
  async metricNames(prefix = "") {
    return quiet([], async () => (await ask("names", { prefix, limit: LISTED })).names);
  }

  /** @param {string} [metric] */
  async labelNames(metric = "") {
    return quiet([], async () => (await ask("v1/labels", selector(metric))).data);
  }

  /** @param {string} label @param {string} [metric] */
  async labelValues(label, metric = "") {
    const name = isPlain(label) ? label : encodeURIComponent(label);
    return quiet([], async () => (await ask(`v1/label/${name}/values`, { ...selector(metric), limit: LISTED })).data);
  }

  async metricMetadata() {
    return quiet({}, async () => (await ask("v1/metadata", {})).data);
  }

  async series() {
    return [];
  }

  async flags() {
    return {};
  }
}

/** @param {string} metric @returns {Record<string, string>} */
function selector(metric) {
  return metric ? { "match[]": `{__name__=${JSON.stringify(metric)}}` } : {};
}

/** @template T @param {T} otherwise @param {() => Promise<T>} load completions are optional: without an answer there are none */
async function quiet(otherwise, load) {
  try {
    return await load();
  } catch {
    return otherwise;
  }
}

export class Editor {
  /**
   * @param {HTMLElement} host
   * @param {{submit: () => void, step: (by: 1|-1) => void, edited: () => void}} on
   * @returns {Promise<Editor>}
   */
  static async open(host, on) {
    const parts = await import(BUNDLE);
    return new Editor(parts, host, on);
  }

  /** @param {any} parts of CodeMirror @param {HTMLElement} host @param {{submit: () => void, step: (by: 1|-1) => void, edited: () => void}} on */
  constructor(parts, host, on) {
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    this.view = new parts.EditorView({ root, parent: root, state: parts.EditorState.create({ extensions: extensions(parts, on) }) });
  }

  get text() {
    return this.view.state.doc.toString();
  }

  /** @param {string} text */
  write(text) {
    if (text !== this.text) this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text }, selection: { anchor: text.length } });
  }

  focus() {
    this.view.focus();
  }

  /** @param {{start: number, end: number}} at */
  select({ start, end }) {
    this.view.dispatch({ selection: { anchor: start, head: end }, scrollIntoView: true });
  }
}

/** @param {any} parts @param {{submit: () => void, step: (by: 1|-1) => void, edited: () => void}} on */
function extensions(parts, on) {
  const { EditorView, keymap, Prec } = parts;
  const does = (/** @type {() => void} */ work) => () => { work(); return true; };
  const keys = [
    { key: "Enter", run: (/** @type {any} */ view) => parts.completionStatus(view.state) !== "active" && does(on.submit)() },
    { key: "Mod-Enter", run: does(on.submit) },
    { key: "Shift-Enter", run: parts.insertNewlineAndIndent },
    { key: "Alt-ArrowUp", run: does(() => on.step(1)) },
    { key: "Alt-ArrowDown", run: does(() => on.step(-1)) },
  ];
  const mode = new parts.PromQLExtension().setComplete({ completeStrategy: strategy(parts) });
  return [
    Prec.high(keymap.of(keys)),
    keymap.of([...parts.closeBracketsKeymap, ...parts.completionKeymap, ...parts.historyKeymap, ...parts.lintKeymap, ...parts.defaultKeymap]),
    parts.history(), parts.bracketMatching(), parts.closeBrackets(), parts.autocompletion(), mode.asExtension(),
    parts.syntaxHighlighting(highlighting(parts)), EditorView.lineWrapping, parts.placeholder("sum by (host) (rate(…[5m]))"),
    EditorView.theme(THEME), EditorView.contentAttributes.of({ "aria-label": "PromQL query" }),
    Prec.high(EditorView.domEventHandlers({ beforeinput: (/** @type {InputEvent} */ event, /** @type {any} */ view) => replaced(parts, event, view) })),
    EditorView.updateListener.of((/** @type {any} */ update) => update.docChanged && on.edited()),
  ];
}

/**
 * Replaces a selection by what is typed. The browser would keep its colours by an inline style, which the page forbids.
 * @param {any} parts @param {InputEvent} event @param {any} view @returns {boolean} true if it was done
 */
function replaced({ EditorView }, event, view) {
  const { main } = view.state.selection, text = event.data;
  if (event.inputType !== "insertText" || event.isComposing || main.empty || text === null) return false;
  event.preventDefault();
  const insert = () => view.state.update({ ...view.state.replaceSelection(text), userEvent: "input.type" });
  const handlers = view.state.facet(EditorView.inputHandler);
  if (!handlers.some((/** @type {any} */ handle) => handle(view, main.from, main.to, text, insert))) view.dispatch(insert());
  return true;
}

/** Returns the completion of the PromQL mode; names that need quotes are written with them. @param {any} parts */
function strategy(parts) {
  const inner = parts.newCompleteStrategy({ remote: new CompletionClient(), maxMetricsMetadata: LISTED });
  return {
    promQL: async (/** @type {any} */ context) => {
      const found = await inner.promQL(context);
      if (!found) return found;
      const quoted = /["'`]/.test(context.state.sliceDoc(Math.max(0, found.from - 1), found.from));
      const options = found.options.map((/** @type {any} */ one) =>
        one.type === "constant" && !isPlain(one.label) && !quoted ? { ...one, apply: `{${JSON.stringify(one.label)}}` } : one);
      return { ...found, options };
    },
  };
}

/** @param {any} parts */
function highlighting({ HighlightStyle, tags }) {
  return HighlightStyle.define([
    { tag: [tags.keyword, tags.modifier, tags.function(tags.variableName)], color: "var(--accent)" },
    { tag: [tags.string, tags.number, tags.labelName], color: "var(--good)" },
    { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
    { tag: tags.invalid, color: "var(--bad)" },
  ]);
}

const THEME = {
  "&": { font: "14px/20px var(--mono)", color: "var(--text)", background: "var(--raised)", border: "1px solid var(--line-strong)", borderRadius: "8px", minHeight: "38px", maxHeight: "260px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px", overflow: "auto" },
  ".cm-content": { padding: "8px 0", caretColor: "var(--text)" },
  ".cm-line": { padding: "0 12px" },
  ".cm-placeholder": { color: "var(--soft)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { background: "var(--accent-wash)" },
  "&.cm-focused .cm-matchingBracket": { background: "var(--accent-wash)", outline: "1px solid var(--accent)" },
  ".cm-tooltip": { background: "var(--card)", color: "var(--text)", border: "1px solid var(--line-strong)", borderRadius: "8px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "260px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { background: "var(--accent-wash)", color: "var(--accent)" },
  ".cm-completionDetail": { color: "var(--soft)", fontStyle: "normal" },
  ".cm-lintRange": { backgroundImage: "none", textDecoration: "underline wavy var(--bad) 1.5px", textUnderlineOffset: "4px" },
  ".cm-diagnostic": { color: "var(--bad)" },
};
