// Marks at moments of a chart: alerts that begin and end, starts of processes or changes of versions, and events of queries.

import { ask, endsOf } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { moment, plural } from "./format.js";
import { legendText, rowsOf } from "./series.js";

/** Uptime of each process of Artimon; an application may have a variable of its own, also a text such as a version. */
export const DEFAULT_STARTS = "fetch('artimon.process.uptime.ms')";
const ENTRIES_MOST = 1_000, MARKS_MOST = 300;
/** Difference of two starts that are one: uptimes are sampled a little late. */
const SAME_MS = 90_000;

/** @typedef {{time_ms: number, kind: "firing"|"resolved"|"start"|"event", text: string, labels?: Record<string, string>}} Mark `labels`: those of an alert */
/** @typedef {{q: string, lang: string, title: string}} EventQuery query of events: a mark where a value becomes other than 0 */

const WORDS = { firing: "▲ fires", resolved: "△ ends", start: "◆ starts", event: "● event" };
const COLOURS = { firing: "--bad", resolved: "--good", start: "--accent", event: "--warn" };

/** @param {Mark} mark @returns {string} */
export const markText = ({ kind, text }) => `${WORDS[kind]}: ${text}`;

/** Shows marks as a list below the number of each kind, in the `#mark-list` of the page. @param {Mark[]} marks @param {string} [problem] what is missing */
export function listMarks(marks, problem = "") {
  const place = byId("mark-list"), lines = marks.map((one) => `${moment(one.time_ms)} ${markText(one)}`);
  place.hidden = !marks.length && !problem;
  const now = JSON.stringify([lines, problem]);
  if (place.dataset.shown === now) return; // keeps the place that is read
  place.dataset.shown = now;
  const counts = Object.entries(WORDS).map(([kind, word]) => ({ word, n: marks.filter((one) => one.kind === kind).length })).filter(({ n }) => n);
  fill(place, [
    el("summary", { id: "mark-count", "data-key": "marks", text: `${plural(marks.length, "mark")}${problem && ", incomplete"}` }),
    ...(problem ? [el("p", { class: "faint", id: "mark-problem", text: problem })] : []),
    ...(marks.length ? [
      el("p", { class: "faint", id: "mark-kinds", text: counts.map(({ word, n }) => `${word} (${n})`).join(", ") }),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Marks", "data-key": "mark lines" }, el("ul", { id: "mark-lines" }, ...lines.map((text) => el("li", { text })))),
    ] : []),
  ]);
}

/**
 * Returns the marks of a span, oldest first, and what is missing: a query that did not answer, marks beyond MARKS_MOST.
 * @param {{marks: string, starts: string, events?: EventQuery[]}} state @param {import("./time_range.js").Span} span @param {AbortSignal} signal
 * @param {(query: string, lang: string) => Promise<import("./api.js").Matrix>} answer asks a query over the span
 * @param {(mark: Mark) => boolean} [isShown] those that are shown and count
 * @returns {Promise<{found: Mark[], problem: string}>}
 */
export async function marksIn({ marks, starts, events = [] }, span, signal, answer, isShown = () => true) {
  const wanted = marks.split(" ");
  const settled = await Promise.allSettled([
    wanted.includes("alerts") ? ask("alerts/history", { limit: ENTRIES_MOST, until_ms: Math.round(span.end_ms) }, signal).then(alertMarks) : [],
    wanted.includes("starts") ? answer(starts || DEFAULT_STARTS, "artimon").then(startMarks) : [],
    ...events.map((one) => answer(one.q, one.lang).then((matrix) => eventMarks(matrix, one.title))),
  ]);
  signal.throwIfAborted();
  const inside = settled.flatMap((one) => (one.status === "fulfilled" ? one.value : [])).filter((one) => one.time_ms >= span.start_ms && one.time_ms <= span.end_ms && isShown(one));
  const problems = settled.flatMap((one, at) => (one.status === "rejected" ? [`Marks of ${["alerts", "starts"][at] ?? `queries[${at - 2}]`}: ${one.reason.message}`] : []));
  if (inside.length > MARKS_MOST) problems.push(`Marks: the newest ${MARKS_MOST} of ${inside.length}`);
  return { found: inside.sort((a, b) => a.time_ms - b.time_ms).slice(-MARKS_MOST), problem: problems.join("; ") };
}

/** @param {{history: {time_ms: number, change: string, rule: string, labels: Record<string, string>}[]}} answer @returns {Mark[]} */
function alertMarks({ history }) {
  return history.flatMap(({ time_ms, change, rule, labels }) => {
    const text = [rule, ...Object.entries(labels).map(([name, value]) => `${name}=${value}`)].join(" ");
    return change === "firing" || change === "resolved" ? [{ time_ms, kind: change, text, labels }] : [];
  });
}

/** @param {import("./api.js").Matrix} matrix @returns {Mark[]} */
function startMarks(matrix) {
  const ends = endsOf(matrix.grid);
  return rowsOf(matrix).rows.flatMap((row) => {
    const { values, name } = row.series, uptime = name.endsWith("uptime.ms");
    const mark = (/** @type {number} */ time_ms, /** @type {string} */ more) => /** @type {Mark} */ ({ time_ms, kind: "start", text: `${row.key}${more}` });
    /** @type {Mark[]} */ const found = [];
    let last = /** @type {number|string|null} */ (null);
    values.forEach((value, at) => {
      if (value === null) return;
      const now = uptime ? ends[at] - Number(value) : String(value);
      if (typeof now === "string" ? last !== null && now !== last : last === null || now - Number(last) > SAME_MS) found.push(typeof now === "string" ? mark(ends[at], ` ${last} → ${now}`) : mark(now, ""));
      last = now;
    });
    return found;
  });
}

/** A missing value, NaN and an empty text count as 0. @param {import("./api.js").Matrix} matrix @param {string} title @returns {Mark[]} */
function eventMarks(matrix, title) {
  const ends = endsOf(matrix.grid);
  return rowsOf(matrix).rows.flatMap((row) => {
    const is = row.series.values.map((value) => Boolean(row.numbers ? Number(value) : value));
    const text = legendText(title, row) || row.key;
    return ends.flatMap((time_ms, at) => (at && is[at] && !is[at - 1] ? [/** @type {Mark} */ ({ time_ms, kind: "event", text })] : []));
  });
}

/** Draws vertical lines with a triangle at the top. @param {any} u uPlot @param {Mark[]} marks @param {(name: string) => string} colour */
export function drawMarks(u, marks, colour) {
  const pen = u.ctx, { left, top, width, height } = u.bbox, ratio = devicePixelRatio || 1;
  pen.save();
  for (const { time_ms, kind } of marks) {
    const x = Math.round(u.valToPos(time_ms / 1000, "x", true)), size = 5 * ratio;
    if (x < left || x > left + width) continue;
    pen.strokeStyle = pen.fillStyle = colour(COLOURS[kind]);
    pen.lineWidth = ratio;
    pen.setLineDash(kind === "firing" ? [] : [3 * ratio, 3 * ratio]);
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, top + height);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x - size, top);
    pen.lineTo(x + size, top);
    pen.lineTo(x, top + size * 1.6);
    pen.fill();
  }
  pen.restore();
}
