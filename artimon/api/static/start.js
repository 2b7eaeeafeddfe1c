// Page of the first steps: what is collected, a query to try, lines that count in an application, a first alert.

import { ask } from "./api.js";
import { byId, copyable, el, fill } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { plural } from "./format.js";
import { buildFrame } from "./frame.js";
import { fetchText } from "./language.js";
import { AddressState, explore, listenKeys, startFeed } from "./list_page.js";

const NAME = /fetch\('([\w.]+)/;
const HOSTS_NAMED = 5;
const INSTALL = "pip install artimon-bookkeeper";

/** Kinds of applications: what to do, and the lines. */
const KINDS = [
  { key: "python", name: "Python", about: "The agent of the host finds the program by itself.", code: `import bookkeeper\n\nbookkeeper.configure(context="shop")\nbookkeeper.add_to_integer_var("orders", {"kind": "book"}, 1)` },
  { key: "asgi", name: "FastAPI, Starlette", about: "Requests by route, method and status, and their duration.", code: `import bookkeeper\nfrom bookkeeper.integrations.asgi import Middleware\n\nbookkeeper.configure(context="shop")\napp.add_middleware(Middleware)` },
  { key: "wsgi", name: "Flask", about: "Requests by route, method and status, and their duration.", code: `import bookkeeper\nfrom bookkeeper.integrations.wsgi import Middleware\n\nbookkeeper.configure(context="shop")\napp.wsgi_app = Middleware(app.wsgi_app)` },
  { key: "django", name: "Django", about: "The first entry of the settings.", code: `MIDDLEWARE = ["bookkeeper.integrations.django.middleware", *MIDDLEWARE]` },
  { key: "celery", name: "Celery", about: "Tasks by name and state, and their duration.", code: `from bookkeeper.integrations import celery\n\ncelery.install()` },
  { key: "prometheus", name: "Prometheus", about: "A server that sends by remote write sends to the agent, too; the address of a stack on one machine:", code: `remote_write:\n  - url: http://127.0.0.1:8730/api/v1/write` },
  { key: "otlp", name: "OpenTelemetry", about: "Any SDK sends metrics by OTLP over HTTP to the agent; the address of a stack on one machine:", code: `export OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf\nexport OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:8730/v1/metrics` },
];
/** First alerts by a variable that they need, the best first. */
const ALERTS = [
  { variable: "host.memory.available.bytes", name: "memory-low", q: "fetch('host.memory.available.bytes') / fetch('host.memory.total.bytes')", alert: "< 0.05", hold: "10m", about: "A host has little memory left." },
  { variable: "host.load", name: "load-high", q: "fetch('host.load')", alert: "> 50", hold: "10m", about: "The load of a host stays high." },
  { variable: "artimon.endpoint.up", name: "context-down", q: "fetch('artimon.endpoint.up').max(by=[\"context\"])", alert: "< 1", hold: "5m", about: "No process of an application answers." },
];

const state = new AddressState({ kind: KINDS[0].key });

const load = async (/** @type {AbortSignal} */ signal) => {
  const list = async (/** @type {string} */ path, /** @type {Record<string, any>} */ given, /** @type {string} */ key) => (await ask(path, given, signal))[key];
  const [names, hosts, contexts] = await Promise.all([
    list("names", {}, "names"), list("label_values", { label: "host", limit: 1000 }, "values"), list("label_values", { label: "context", limit: 100 }, "values"),
  ]);
  return { names, hosts, contexts };
};

/** @param {{names: string[], hosts: string[], contexts: string[]}} found */
function show({ names, hosts, contexts }) {
  const named = (/** @type {string[]} */ all) => `${all.slice(0, HOSTS_NAMED).join(", ")}${all.length > HOSTS_NAMED ? ", …" : ""}`;
  byId("facts").textContent = names.length
    ? `${plural(names.length, "variable")} of ${plural(hosts.length, "host")} (${named(hosts)})${contexts.length ? `, from ${named(contexts)}` : ""}.`
    : "Nothing yet. An agent reads its host and all programs on it once a minute: look again in a minute.";
  const known = new Set(names);
  showAlert(names, known);
  const fitting = EXAMPLES.filter((one) => known.has(NAME.exec(one.text)?.[1] ?? ""));
  fill(byId("queries"), (fitting.length ? fitting : EXAMPLES).slice(0, 3).map((one) => el("li", {}, el("a", { href: explore(one.text), "data-key": one.text }, el("code", { text: one.text })), ` ${one.about}`)));
}

/** Shows the first alert that a variable allows: of any variable, that it stops to come. @param {string[]} names @param {Set<string>} known */
function showAlert(names, known) {
  const found = ALERTS.find((one) => known.has(one.variable))
    ?? names.slice(0, 1).map((one) => ({ name: "no-data", q: fetchText(one).replace("fetch", "absent"), alert: "== true", hold: "5m", about: `Nobody sends ${one} any more.` }))[0];
  byId("first-alert").hidden = !found;
  byId("alert-about").textContent = found?.about ?? "It comes with the first variable.";
  if (found) byId("first-alert").setAttribute("href", explore(found.q, { alert: found.alert, name: found.name, for: found.hold }));
}

function showKind() {
  const kind = KINDS.find((one) => one.key === state.now.kind) ?? KINDS[0];
  byId("kind-about").textContent = kind.about;
  const library = ["prometheus", "otlp"].includes(kind.key) ? "" : `${INSTALL}\n\n`;
  fill(byId("kind-code"), copyable(`${library}${kind.code}`, `lines for ${kind.name}`));
}

buildFrame("start");
const chosen = KINDS.some((one) => one.key === state.now.kind) ? state.now.kind : KINDS[0].key;
byId("kinds").append(...KINDS.map((one) => el("label", {}, el("input", { type: "radio", name: "kind", value: one.key, checked: one.key === chosen, onchange: () => { state.set({ kind: one.key }); showKind(); } }), el("span", { text: one.name }))));
showKind();
listenKeys({ "/": () => byId("collected").focus() });
startFeed({ load, show, refresh: "10s" });
