// Requests to the API. Every request has a timeout and can be aborted.

const DEADLINE_MS = 10_000;
/** Timeout of a query, longer than that of a panel. */
export const QUERY_DEADLINE_MS = 25_000;
/** The same within the hard limits. */
export const HARD_DEADLINE_MS = 125_000;

/** Answer other than 200, or no answer (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {{position?: number|null, length?: number|null, retry_ms?: number, refused?: boolean}} [more] `refused`: there was no
   *   connection, or it broke
   */
  constructor(message, status, more = {}) {
    super(message);
    this.status = status;
    this.position = more.position ?? null;
    this.length = more.length ?? null;
    this.retry_ms = more.retry_ms ?? 0;
    this.refused = more.refused ?? false;
  }
}

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {Record<string, string>} labels
 * @property {"INTEGER"|"DOUBLE"|"BOOLEAN"|"STRING"} type
 * @property {import("./format.js").Value[]} values oldest first; null is missing; "NaN", "Infinity", "-Infinity" are values
 *
 * @typedef {object} Matrix
 * @property {{start_ms: number, end_ms: number, step_ms: number, n: number, ends_ms?: number[]}} grid
 * @property {boolean} complete
 * @property {boolean} partial
 * @property {string[]} notes
 * @property {boolean} [warned] true if some of the notes are warnings of PromQL
 * @property {string} [engine] the store that answered: "memory", "history", "memory and history"
 * @property {string[]} [read] notes in the headers, of an answer without notes of its own
 * @property {Series[]} series
 */

/**
 * Returns the ends of the buckets. Buckets of a calendar differ in length.
 * @param {Matrix["grid"]} grid
 */
export function endsOf(grid) {
  return grid.ends_ms ?? Array.from({ length: grid.n }, (_, i) => grid.start_ms + (i + 1) * grid.step_ms);
}

/** @param {Matrix["grid"]} grid */
export function stepOf(grid) {
  return grid.step_ms || (grid.end_ms - grid.start_ms) / grid.n;
}

/**
 * Returns the URL of a route, relative to the page, so that a proxy may serve it below a path.
 * @param {string} route
 * @param {Record<string, string|number>} [parameters]
 */
export function address(route, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)])).toString();
  return `api/${route}${query ? `?${query}` : ""}`;
}

/**
 * Fetches the JSON of a route.
 * @param {string} route
 * @param {Record<string, string|number>} parameters
 * @param {AbortSignal} [signal]
 * @param {number} [deadline_ms]
 * @param {number} [age_s] age that an answer which clients share may have; 0: a new answer
 * @returns {Promise<any>}
 * @throws {ApiError} also if no answer comes; AbortError if `signal` aborts
 */
export async function ask(route, parameters, signal, deadline_ms = DEADLINE_MS, age_s = 0) {
  return send("GET", route, parameters, age_s ? { headers: { "cache-control": `max-age=${age_s}` } } : {}, signal, deadline_ms);
}

/**
 * Sends a request of any method.
 * @param {string} method @param {string} route @param {Record<string, string|number>} parameters
 * @param {{body?: string, headers?: Record<string, string>}} content
 * @param {AbortSignal} [signal]
 * @param {number} [deadline_ms]
 * @returns {Promise<any>} as `ask`
 */
export async function send(method, route, parameters, content, signal, deadline_ms = DEADLINE_MS) {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), deadline_ms);
  const both = signal ? AbortSignal.any([signal, deadline.signal]) : deadline.signal;
  const headers = { accept: "application/json", ...content.headers };
  const init = { method, signal: both, headers, body: content.body, cache: /** @type {RequestCache} */ ("no-store") };
  try {
    const answer = await fetch(address(route, parameters), init);
    const text = await answer.text();
    if (answer.status === 401 && answer.headers.get("www-authenticate") === "Bearer") logIn();
    if (!answer.ok) throw refusal(answer, text);
    return withOrigin(parse(text), answer.headers);
  } catch (problem) {
    if (problem instanceof ApiError || signal?.aborted) throw problem;
    if (deadline.signal.aborted) throw new ApiError(`no answer within ${deadline_ms / 1000} s`, 0);
    throw new ApiError("the API does not answer", 0, { refused: true });
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Sends a change as JSON.
 * @param {string} method @param {string} route @param {object} body
 * @returns {Promise<any>} as `ask`
 */
export async function sendJson(method, route, body) {
  return send(method, route, {}, { body: JSON.stringify(body), headers: { "content-type": "application/json" } });
}

/** Adds what the headers say about the origin of an answer to a query. @param {any} found @param {Headers} headers */
function withOrigin(found, headers) {
  const engine = headers.get("x-artimon-engine");
  return engine ? { ...found, engine, read: JSON.parse(headers.get("x-artimon-notes") ?? "[]") } : found;
}

/** Opens the page of the login, which leads back: the session has ended. */
function logIn() {
  location.assign(`login?next=${encodeURIComponent(`/${location.pathname.split("/").pop()}${location.search}${location.hash}`)}`);
}

/** @param {Response} answer @param {string} text @returns {ApiError} */
function refusal(answer, text) {
  const retry_ms = Number(answer.headers.get("retry-after") ?? 0) * 1000;
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string") return new ApiError(error, answer.status, { retry_ms });
    const { message, position, length } = error;
    return new ApiError(String(message), answer.status, { position, length, retry_ms });
  } catch {
    return new ApiError(`the API answered ${answer.status}`, answer.status, { retry_ms });
  }
}

/**
 * Parses JSON; integers beyond 2^53 become bigint if the browser supports it, else they are rounded.
 * @param {string} text
 */
export function parse(text) {
  if (!/[\[,:]\s*-?\d{16,}\s*[,\]}]/.test(text)) return JSON.parse(text);
  return JSON.parse(text, /** @type {any} */ (
    (/** @type {string} */ _key, /** @type {any} */ value, /** @type {{source?: string}|undefined} */ context) =>
      typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
        ? BigInt(/** @type {string} */ (context?.source))
        : value
  ));
}
