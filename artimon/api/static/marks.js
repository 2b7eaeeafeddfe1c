// Marks at moments of a chart: alerts that begin and end, and starts of processes or changes of versions.

import { ask, endsOf } from "./api.js";
import { rowsOf } from "./series.js";

/** Uptime of each process of Artimon; an application may have a variable of its own, also a text such as a version. */
export const DEFAULT_STARTS = "fetch('artimon.process.uptime.ms')";
const ENTRIES_MOST = 1_000, MARKS_MOST = 300;
/** Difference of two starts that are one: uptimes are sampled a little late. */
const SAME_MS = 90_000;

/** @typedef {{time_ms: number, kind: "firing"|"resolved"|"start", text: string}} Mark */

/** @param {Mark} mark @returns {string} */
export const markText = ({ kind, text }) => `${kind === "firing" ? "▲ fires" : kind === "resolved" ? "△ ends" : "◆ starts"}: ${text}`;

/**
 * Returns the marks of a span, oldest first, and what did not answer.
 * @param {{marks: string, starts: string}} state @param {import("./time_range.js").Span} span @param {AbortSignal} signal
 * @param {(query: string) => Promise<import("./api.js").Matrix>} answer asks a query over the span
 * @returns {Promise<{found: Mark[], problem: string}>}
 */
export async function marksIn({ marks, starts }, span, signal, answer) {
  const wanted = marks.split(" ");
  const settled = await Promise.allSettled([
    wanted.includes("alerts") ? ask("alerts/history", { limit: ENTRIES_MOST, until_ms: Math.round(span.end_ms) }, signal).then(alertMarks) : [],
    wanted.includes("starts") ? answer(starts || DEFAULT_STARTS).then(startMarks) : [],
  ]);
  signal.throwIfAborted();
  const inside = settled.flatMap((one) => (one.status === "fulfilled" ? one.value : [])).filter((one) => one.time_ms >= span.start_ms && one.time_ms <= span.end_ms);
  const problem = settled.flatMap((one) => (one.status === "rejected" ? [`Marks: ${one.reason.message}`] : [])).join("; ");
  return { found: inside.sort((a, b) => a.time_ms - b.time_ms).slice(-MARKS_MOST), problem };
}

/** @param {{history: {time_ms: number, change: string, rule: string, labels: Record<string, string>}[]}} answer @returns {Mark[]} */
function alertMarks({ history }) {
  return history.flatMap(({ time_ms, change, rule, labels }) => {
    const text = [rule, ...Object.entries(labels).map(([name, value]) => `${name}=${value}`)].join(" ");
    return change === "firing" || change === "resolved" ? [{ time_ms, kind: change, text }] : [];
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

/** Draws vertical lines with a triangle at the top. @param {any} u uPlot @param {Mark[]} marks @param {(name: string) => string} colour */
export function drawMarks(u, marks, colour) {
  const pen = u.ctx, { left, top, width, height } = u.bbox, ratio = devicePixelRatio || 1;
  pen.save();
  for (const { time_ms, kind } of marks) {
    const x = Math.round(u.valToPos(time_ms / 1000, "x", true)), size = 5 * ratio;
    if (x < left || x > left + width) continue;
    pen.strokeStyle = pen.fillStyle = colour(kind === "firing" ? "--bad" : kind === "resolved" ? "--good" : "--accent");
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
