// The parts of a browser that the packages touch while they are loaded.
const nothing = () => undefined;
const element = () => ({ style: {}, setAttribute: nothing, appendChild: nothing, getContext: () => null });
const kept = new Map();

globalThis.window = globalThis;
globalThis.self = globalThis;
globalThis.document = {
  currentScript: null,
  readyState: 'complete',
  getElementsByTagName: () => [],
  createElement: element,
  createElementNS: element,
  createTextNode: element,
  querySelector: () => null,
  querySelectorAll: () => [],
  getElementById: () => null,
  addEventListener: nothing,
  removeEventListener: nothing,
  head: element(),
  body: element(),
  documentElement: element(),
  implementation: { createHTMLDocument: () => ({ body: element() }) },
};
globalThis.history = { pushState: nothing, replaceState: nothing, state: null };
globalThis.grafanaBootData = { settings: { featureToggles: {} }, user: {}, navTree: [] };
globalThis.location = new URL('http://localhost/');
globalThis.navigator ??= { userAgent: 'node', language: 'en' };
globalThis.localStorage = {
  getItem: (key) => kept.get(key) ?? null,
  setItem: (key, value) => kept.set(key, value),
  removeItem: (key) => kept.delete(key),
};
globalThis.sessionStorage = globalThis.localStorage;
globalThis.matchMedia = () => ({ matches: false, addEventListener: nothing, removeEventListener: nothing });
globalThis.addEventListener = nothing;
globalThis.removeEventListener = nothing;
globalThis.requestAnimationFrame = (work) => setTimeout(work, 0);
globalThis.getComputedStyle = () => ({});
for (const name of ['Element', 'HTMLElement', 'Node', 'ResizeObserver', 'MutationObserver', 'Image', 'DOMParser']) {
  globalThis[name] ??= class {};
}
// Standard output is for answers.
for (const name of ['log', 'info', 'debug']) console[name] = console.error;
