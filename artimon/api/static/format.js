// Formatting of numbers, times and series.

const UNITS = /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]);
/** Time zone of all shown times, "" for the browser's. */
let shownZone = "";
let formats = formatsOf("");

/** @param {string} zone */
function formatsOf(zone) {
  const made = (/** @type {Intl.DateTimeFormatOptions} */ options) => new Intl.DateTimeFormat("en-GB", { timeZone: zone || undefined, hourCycle: "h23", ...options });
  const clock = /** @type {const} */ ({ hour: "2-digit", minute: "2-digit" });
  return { minute: made(clock), clock: made({ ...clock, second: "2-digit" }), day: made({ day: "numeric", month: "short" }), year: made({ year: "numeric" }) };
}

/** Chooses the time zone of all shown times. @param {string} zone a valid one, "" for the browser's */
export function setZone(zone) {
  if (zone === shownZone) return;
  shownZone = zone;
  formats = formatsOf(zone);
}

/** Returns the time zone of all shown times, "" for the browser's. */
export const zone = () => shownZone;

/** @typedef {number|bigint|string|boolean|null} Value cell of a matrix; null is missing */

/**
 * Formats a number with k, M, G, T and about `digits` significant digits.
 * @param {number} value
 * @param {number} [digits]
 */
export function compact(value, digits = 4) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential(2);
  const [divisor, unit] = UNITS.find(([least]) => size >= least * 0.99995) ?? [1, ""];
  return trimmed(value / divisor, digits) + unit;
}

/** @param {number} value @param {number} digits */
function trimmed(value, digits) {
  const text = Math.abs(value) >= 10 ** digits ? value.toFixed(0) : value.toPrecision(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/**
 * Formats a cell in full, as in the API.
 * @param {Value} value
 */
export function exact(value) {
  return value === null ? "–" : String(value);
}

/** @param {number} ms a span @returns {string} such as "42 s", "5 min", "3 h", "2 d" */
export function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (s < 60) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129_600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** @param {number} ms epoch @returns {string} 14:05:03 */
export const clock = (ms) => formats.clock.format(ms);

/** @param {number} ms epoch @returns {string} 14:05 */
export const minute = (ms) => formats.minute.format(ms);

/** @param {number} ms epoch @returns {string} "21 Nov", with the year unless it is this one */
export function day(ms) {
  const year = formats.year.format(ms);
  return year === formats.year.format(Date.now()) ? formats.day.format(ms) : `${formats.day.format(ms)} ${year}`;
}

/** @param {number} ms epoch @returns {string} "14:05", with the day unless it is today */
export function moment(ms) {
  return day(ms) === day(Date.now()) ? minute(ms) : `${day(ms)} ${minute(ms)}`;
}

/** Names a range as people read it. @param {string} range @param {number} start_ms @param {number} end_ms */
export function rangeLabel(range, start_ms, end_ms) {
  const text = range.includes(" to ") ? `${moment(start_ms)} – ${range.endsWith(" to now") ? "now" : moment(end_ms)}` : `last ${range}`;
  return shownZone ? `${text}, ${shownZone}` : text;
}

/** @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en-GB")} ${count === 1 ? one : many}`;

/** @param {string} value @returns {string} quoted and escaped for a selector */
export function quote(value) {
  const text = value.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/\n/g, "\\n").replace(/\r/g, "\\r");
  return `"${text}"`;
}

/**
 * Returns the canonical text of a series.
 * @param {string} name
 * @param {Record<string, string>} labels
 */
export function seriesText(name, labels) {
  const keys = Object.keys(labels).sort();
  const pairs = keys.map((key) => `${key}=${quote(labels[key])}`).join(",");
  return pairs || !name ? `${name}{${pairs}}` : name;
}

/** @param {number} bytes_mb MiB @returns {string} */
export const memory = (bytes_mb) => (bytes_mb >= 1024 ? `${(bytes_mb / 1024).toFixed(1)} GiB` : `${bytes_mb} MiB`);
