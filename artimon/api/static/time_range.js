// Time ranges as texts of the address: "30d" (until now), "now-60d to now-30d", "2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z".
// Pure: the caller brings the time.

/** Ranges that the page offers, and their names. */
export const OFFERED = [["15m", "15 min"], ["1h", "1 h"], ["3h", "3 h"], ["12h", "12 h"], ["3d", "3 d"], ["30d", "30 d"], ["365d", "1 y"]];
const UNITS_MS = /** @type {Record<string, number>} */ ({ s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000, y: 31_536_000_000 });
/** Shortest and longest range. */
const LEAST_MS = 60_000, MOST_MS = 20 * UNITS_MS.y;
const POINTS_MOST = 400;
const STEPS_S = [60, 300, 1200, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800];
/** A bucket is complete this long after its end, as on the server. */
const SETTLE_MS = 15_000;

/**
 * @typedef {object} Span
 * @property {number} start_ms
 * @property {number} end_ms
 * @property {number} now_ms evaluation time
 * @property {boolean} live true if it ends now
 */

/** @param {string} text such as "1h30m" @returns {number|null} milliseconds */
export function parseDuration(text) {
  if (!/^(\d+[smhdwy])+$/.test(text)) return null;
  const ms = [...text.matchAll(/(\d+)([smhdwy])/g)].reduce((sum, [, count, unit]) => sum + Number(count) * UNITS_MS[unit], 0);
  return ms > 0 && ms <= MOST_MS ? ms : null;
}

/** @param {number} ms @returns {string} in days, hours, minutes or seconds, as the server reads it */
export function durationText(ms) {
  const unit = ["d", "h", "m"].find((one) => ms % UNITS_MS[one] === 0) ?? "s";
  return `${Math.max(1, Math.round(ms / UNITS_MS[unit]))}${unit}`;
}

/** @param {string} zone "" for the browser's @returns {boolean} */
export function isZone(zone) {
  try {
    return Boolean(new Intl.DateTimeFormat("en-GB", { timeZone: zone || undefined }));
  } catch {
    return false;
  }
}

/** Returns the time of the clock on the wall in a zone, as if it were UTC. @param {number} ms @param {string} zone */
function wallOf(ms, zone) {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone: zone || undefined, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" });
  const part = Object.fromEntries(format.formatToParts(ms).map((one) => [one.type, Number(one.value)]));
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second);
}

/** @param {number} ms @param {string} zone @returns {string} "2026-11-01 10:00", as `parseTime` reads it */
export function timeText(ms, zone) {
  return new Date(wallOf(ms, zone)).toISOString().slice(0, 16).replace("T", " ");
}

/**
 * Parses "now", "now-6h", a date, or a date and time; without an offset in `zone`.
 * @param {string} text @param {string} zone @param {number} now_ms
 * @returns {number|null} epoch ms
 */
export function parseTime(text, zone, now_ms) {
  const relative = /^now(?:\s*-\s*(\w+))?$/.exec(text);
  if (relative) {
    const back = relative[1] === undefined ? 0 : parseDuration(relative[1]);
    return back === null ? null : now_ms - back;
  }
  const found = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(Z|[+-]\d\d:\d\d)?)?$/.exec(text);
  if (!found) return null;
  const [, date, clock = "00:00", offset] = found, wall = Date.parse(`${date}T${clock}${offset ?? "Z"}`);
  if (Number.isNaN(wall) || wall < 0) return null;
  if (offset) return wall;
  const guess = wall - (wallOf(wall, zone) - wall); // right but around a change of the clock
  return wall - (wallOf(guess, zone) - guess);
}

/**
 * Returns a range in the form of the address; "" if it is not valid.
 * @param {string} text "30d", "now-30d", "FROM to TO" @param {string} zone of times without an offset @param {number} now_ms
 */
export function normalized(text, zone, now_ms) {
  const given = text.trim(), length = parseDuration(given);
  if (length !== null) return length >= LEAST_MS ? given : "";
  const [from, to = "now", ...more] = given.split(/\s+to\s+/);
  const start = parseTime(from, zone, now_ms), end = parseTime(to, zone, now_ms);
  if (more.length || start === null || end === null || end - start < LEAST_MS || end - start > MOST_MS) return "";
  if (to === "now" && from.startsWith("now")) return from.replace(/^now\s*-\s*/, "");
  const fixed = (/** @type {string} */ one, /** @type {number} */ ms) => (one.startsWith("now") ? one.replace(/\s/g, "") : `${new Date(ms).toISOString().slice(0, 19)}Z`);
  return `${fixed(from, start)} to ${fixed(to, end)}`;
}

/** @param {string} range in the form of the address @param {number} now_ms @returns {Span} */
export function spanOf(range, now_ms) {
  const [from, to = "now"] = range.split(" to ");
  const end_ms = Math.min(now_ms, parseTime(to, "UTC", now_ms) ?? now_ms), length = parseDuration(range);
  const start_ms = length === null ? parseTime(from, "UTC", now_ms) ?? end_ms - UNITS_MS.h : end_ms - length;
  return { start_ms: Math.min(start_ms, end_ms - LEAST_MS), end_ms, now_ms, live: to === "now" };
}

/** Returns a span that lies earlier. @param {Span} span @param {number} by_ms @returns {Span} */
export function earlier(span, by_ms) {
  return { start_ms: span.start_ms - by_ms, end_ms: span.end_ms - by_ms, now_ms: span.now_ms - by_ms, live: false };
}

/** Returns the evaluation time of a query whose newest bucket ends with the span. @param {Span} span */
export function evaluatedAt({ end_ms, now_ms }) {
  return Math.max(end_ms, Math.min(now_ms, end_ms + SETTLE_MS));
}

/** Returns a range that begins and ends at these times; one that ends now stays relative. @param {number} start_ms @param {number} end_ms @param {number} now_ms */
export function between(start_ms, end_ms, now_ms) {
  const length = Math.min(MOST_MS, Math.max(LEAST_MS, end_ms - start_ms));
  if (end_ms >= now_ms - 1000) return durationText(Math.round(length / 60_000) * 60_000);
  const text = (/** @type {number} */ ms) => `${new Date(Math.max(0, ms)).toISOString().slice(0, 19)}Z`;
  return `${text(end_ms - length)} to ${text(end_ms)}`;
}

/** Returns the range moved by a part of its length. @param {string} range @param {number} part below 0: into the past @param {number} now_ms */
export function shifted(range, part, now_ms) {
  const { start_ms, end_ms } = spanOf(range, now_ms), by = (end_ms - start_ms) * part;
  return between(start_ms + by, end_ms + by, now_ms);
}

/** Returns the range around the same middle, or up to now, `times` as long. @param {string} range @param {number} times @param {number} now_ms */
export function zoomed(range, times, now_ms) {
  const { start_ms, end_ms, live } = spanOf(range, now_ms), more = (end_ms - start_ms) * (times - 1);
  return live ? between(start_ms - more, end_ms, now_ms) : between(start_ms - more / 2, end_ms + more / 2, now_ms);
}

/** Returns the step of a query over a range: at most POINTS_MOST points, s. @param {number} length_ms */
export function stepFor(length_ms) {
  return STEPS_S.find((step) => length_ms / step / 1000 <= POINTS_MOST) ?? STEPS_S[STEPS_S.length - 1] * Math.ceil(length_ms / STEPS_S[STEPS_S.length - 1] / 1000 / POINTS_MOST);
}

/** Least time between two questions: a longer range changes more slowly; one that has ended does not change. @param {string} range @param {number} now_ms */
export function leastInterval(range, now_ms) {
  const { start_ms, end_ms, live } = spanOf(range, now_ms);
  if (!live) return range.includes("now") ? UNITS_MS.m : Infinity;
  return end_ms - start_ms > 3 * UNITS_MS.d ? 5 * UNITS_MS.m : 0;
}
