// Parts of CodeMirror and of its PromQL mode that the page uses; bundled into artimon/api/static/vendor/codemirror.

export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, completionStatus, startCompletion } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, insertNewlineAndIndent } from "@codemirror/commands";
export { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
export { lintKeymap, setDiagnostics } from "@codemirror/lint";
export { EditorState, Prec } from "@codemirror/state";
export { EditorView, keymap, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";
export { newCompleteStrategy, PromQLExtension } from "@prometheus-io/codemirror-promql";
