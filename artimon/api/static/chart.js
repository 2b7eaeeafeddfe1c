// Chart: uPlot, its axes and colours, zoom, cursor by mouse and keyboard.

import { endsOf, stepOf } from "./api.js";
import { announce } from "./dom.js";
import { clock, compact, day, minute, moment, zone } from "./format.js";
import { drawMarks, markText } from "./marks.js";
import { cellText, isDark, styleOf } from "./series.js";
import { Tooltip } from "./tooltip.js";

const HOVER_MOST = 40;
const DRAG_LEAST_PX = 5;
const DAY_S = 86_400;
const FONT_PX = 12, TICK_PX = 5, GAP_PX = 5;
/** Minimum width of the y axis, so that the chart does not jump with each value; margin right of the x axis. */
const Y_AXIS_LEAST_PX = 48, RIGHT_LEAST_PX = 14;

/**
 * @typedef {import("./series.js").Row} Row
 * @typedef {import("./api.js").Matrix["grid"]} Grid
 */

export class Chart {
  /**
   * @param {HTMLElement} figure
   * @param {(zoom: [number, number]|null) => void} onZoom called with each zoom, epoch s
   * @param {{sync?: string, format?: (value: number) => string, min?: number|null, max?: number|null}} [more] `sync`: charts with the
   *   same one share the cursor; `format` of the y axis; ends of the y axis
   */
  constructor(figure, onZoom, more = {}) {
    this.figure = figure;
    this.more = more;
    this.onZoom = onZoom;
    this.tooltip = new Tooltip(figure);
    /** @type {any} */ this.plot = null;
    /** @type {Row[]} */ this.rows = [];
    /** @type {import("./marks.js").Mark[]} */ this.marks = [];
    /** @type {[number, number]|null} */ this.zoom = null;
    /** @type {[number, number]} */ this.whole = [0, 1];
    this.shown = (/** @type {Row} */ _row) => true;
    this.signature = "";
    this.at = { index: -1, row: 0 };
    this.began = 0;
    new ResizeObserver(() => this._resize()).observe(figure);
    figure.addEventListener("keydown", (event) => this._key(event));
    figure.addEventListener("blur", () => this.tooltip.hide());
  }

  /**
   * Draws `rows`, or only their new values if nothing else changed.
   * @param {Row[]} rows those with numbers
   * @param {Grid} grid
   * @param {(row: Row) => boolean} shown
   */
  draw(rows, grid, shown) {
    this.began = performance.now();
    const xs = endsOf(grid).map((ms) => ms / 1000);
    const half = grid.n > 1 ? 0 : stepOf(grid) / 2000;
    this.whole = [xs[0] - half, xs[xs.length - 1] + half];
    Object.assign(this, { rows, shown, xs });
    const data = [xs, ...rows.map((row) => row.numbers)];
    const signature = JSON.stringify([isDark(), zone(), stepOf(grid), rows.map((row) => row.key)]);
    if (this.plot && signature === this.signature) {
      this.plot.batch(() => {
        this.plot.setData(data, false);
        rows.forEach((row, i) => this._showOne(i + 1, shown(row)));
        this._applyZoom();
      });
    } else {
      this.signature = signature;
      this._build(data, shown);
    }
    this._describe();
  }

  /** @param {number} i of uPlot @param {boolean} show */
  _showOne(i, show) {
    if (this.plot.series[i].show !== show) this.plot.setSeries(i, { show });
  }

  /** @param {any[]} data @param {(row: Row) => boolean} shown */
  _build(data, shown) {
    this.plot?.destroy();
    this.at = { index: -1, row: 0 };
    this.plot = new (/** @type {any} */ (window).uPlot)(this._options(shown), data, this.figure);
    this._applyZoom();
  }

  /** @param {(row: Row) => boolean} shown */
  _options(shown) {
    const css = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => css.getPropertyValue(name).trim();
    const font = `${FONT_PX}px ${colour("--sans")}`;
    const right = (/** @type {any} */ u) => Math.max(RIGHT_LEAST_PX, Math.ceil(widest(u.axes[0]._values, font) / 2) + 2);
    const room = (/** @type {any} */ _u, /** @type {string[]|null} */ texts) => Math.max(Y_AXIS_LEAST_PX, Math.ceil(widest(texts, font)) + TICK_PX + GAP_PX + 2);
    const axis = {
      stroke: colour("--soft"), font, gap: GAP_PX,
      grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: TICK_PX },
    };
    const many = this.rows.length > HOVER_MOST;
    return {
      ...this._size(), padding: [10, right, 0, 0], legend: { show: false }, focus: { alpha: 0.22 },
      ...(zone() ? { tzDate: (/** @type {number} */ s) => (/** @type {any} */ (window).uPlot.tzDate(new Date(s * 1000), zone())) } : {}),
      scales: { x: { time: true, range: () => this.zoom ?? this.whole }, y: { range: (/** @type {any} */ u, /** @type {number|null} */ min, /** @type {number|null} */ max) => this._range(u, min, max) } },
      axes: [
        { ...axis, space: 70, size: days(this.whole) ? 46 : 32, values: (/** @type {any} */ _u, /** @type {number[]} */ at, ...rest) => times(at, rest[2]) },
        { ...axis, size: room, values: (/** @type {any} */ _u, /** @type {number[]} */ at) => at.map((v) => this.more.format?.(v) ?? compact(v, 6)) },
      ],
      series: [{}, ...this.rows.map((row, i) => this._look(row, i, shown(row)))],
      cursor: {
        y: false, focus: { prox: many ? -1 : 24 }, points: { show: !many, size: 7 },
        ...(this.more.sync ? { sync: { key: this.more.sync, setSeries: false } } : {}),
        drag: { x: true, y: false, setScale: false, dist: DRAG_LEAST_PX },
        bind: { dblclick: () => () => { this.zoomTo(null); return null; } },
      },
      hooks: {
        setSelect: [(/** @type {any} */ u) => this._dragged(u)],
        draw: [(/** @type {any} */ u) => drawMarks(u, this.marks, colour), () => this._drawn()],
        setCursor: [(/** @type {any} */ u) => this._moved(u)],
      },
    };
  }

  /** @param {Row} row @param {number} i @param {boolean} show */
  _look(row, i, show) {
    const { colour, dash, width } = styleOf(this.rows, i, isDark());
    const alone = lonely(row.numbers ?? []);
    const points = { show: false, size: 5, fill: colour, stroke: colour, filter: () => (alone.length ? alone : null) };
    return { label: row.key, show, stroke: colour, width, dash, spanGaps: false, points };
  }

  /** Shows the values at the cursor; a chart whose cursor only follows another's shows the line. @param {any} u */
  _moved(u) {
    if (!this.more.sync || this.figure.matches(":hover, :focus")) this.tooltip.follow(u, this.rows, this.at, this.marks);
    else this.tooltip.hide();
  }

  /** Returns the y range with the ends that were given. @param {any} u @param {number|null} min @param {number|null} max */
  _range(u, min, max) {
    const found = yRange(u, min, max);
    const low = this.more.min ?? found[0], high = this.more.max ?? found[1];
    return low < high ? [low, high] : found;
  }

  /** Records the drawing time on the figure; uPlot draws asynchronously. */
  _drawn() {
    if (!this.began) return;
    this.figure.dataset.ms = (performance.now() - this.began).toFixed(1);
    this.began = 0;
  }

  /** @param {any} u after a drag */
  _dragged(u) {
    if (u.select.width < DRAG_LEAST_PX) return;
    const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoomTo([from, to]);
  }

  /** @param {[number, number]|null} zoom epoch s; null shows all */
  zoomTo(zoom) {
    this.zoom = zoom;
    if (this.plot) this._applyZoom();
    this.onZoom(zoom);
  }

  _applyZoom() {
    const [min, max] = this.zoom ?? this.whole;
    this.plot.setScale("x", { min, max });
  }

  /** Draws vertical marks. @param {import("./marks.js").Mark[]} marks */
  mark(marks) {
    this.marks = marks;
    this.plot?.redraw(false);
  }

  /** Highlights the series of `key`; null removes the highlight. @param {string|null} key */
  highlight(key) {
    if (!this.plot) return;
    const i = key === null ? -1 : this.rows.findIndex((row) => row.key === key);
    this.plot.setSeries(i < 0 ? null : i + 1, { focus: true });
  }

  _size() {
    return { width: Math.max(200, this.figure.clientWidth), height: Math.max(this.more.sync ? 100 : 160, this.figure.clientHeight) };
  }

  _resize() {
    if (this.plot && this.figure.clientWidth) this.plot.setSize(this._size());
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (!this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.plot.data[0].length - 1;
    const index = this.at.index < 0 ? last + 1 : this.at.index;
    /** @type {Record<string, () => void>} */
    const moves = {
      ArrowLeft: () => this._go(Math.max(0, index - 1), 0),
      ArrowRight: () => this._go(Math.min(last, index + 1), 0),
      Home: () => this._go(0, 0),
      End: () => this._go(last, 0),
      ArrowUp: () => this._go(Math.min(last, index), -1),
      ArrowDown: () => this._go(Math.min(last, index), 1),
      "+": () => this._zoomIn(Math.min(last, index)),
      Escape: () => this.zoomTo(null),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  }

  /** @param {number} index of a bucket @param {number} by series */
  _go(index, by) {
    const visible = this.rows.map((row, i) => i).filter((i) => this.shown(this.rows[i]));
    if (!visible.length) return;
    const now = visible.indexOf(this.at.row);
    const next = visible[((now < 0 ? 0 : now + by) + visible.length) % visible.length];
    this.at = { index, row: next };
    const row = this.rows[next], x = this.plot.data[0][index], value = row.numbers?.[index] ?? null;
    const text = cellText(row, index) ?? "missing";
    const top = value === null ? 0 : this.plot.valToPos(value, "y");
    this.plot.setCursor({ left: this.plot.valToPos(x, "x"), top });
    this.plot.setSeries(next + 1, { focus: true });
    const from = this.plot.data[0][index - 1] ?? -Infinity, here = this.marks.filter((one) => one.time_ms > from * 1000 && one.time_ms <= x * 1000);
    announce([`${moment(x * 1000)}, ${row.short}: ${text}`, ...here.map(markText)].join("; "));
  }

  /** @param {number} index of a bucket */
  _zoomIn(index) {
    const [from, to] = this.zoom ?? this.whole, middle = this.plot.data[0][index], quarter = (to - from) / 4;
    this.zoomTo([Math.max(this.whole[0], middle - quarter), Math.min(this.whole[1], middle + quarter)]);
  }

  _describe() {
    const [from, to] = this.whole, n = this.rows.length;
    const what = n === 1 ? `Chart of ${this.rows[0].key}` : `Chart of ${n} series`;
    this.figure.setAttribute("aria-label", `${what}, ${moment(from * 1000)} to ${moment(to * 1000)}`);
  }

  /** Redraws with the colours of the theme. */
  recolour() {
    if (!this.plot) return;
    this.signature = "";
    this._build(this.plot.data, this.shown);
  }

  clear() {
    this.plot?.destroy();
    this.plot = null;
    this.rows = [];
    this.tooltip.hide();
  }
}

/** Returns the y range with a margin; it starts at 0 if 0 is near. @param {any} _u @param {number|null} min @param {number|null} max */
function yRange(_u, min, max) {
  if (min === null || max === null) return [0, 1];
  if (min === max) return min === 0 ? [-1, 1] : [Math.min(0, min * 1.5), Math.max(0, max * 1.5)];
  return /** @type {any} */ (window).uPlot.rangeNum(min, max, 0.1, true);
}

/** Returns the indices of values between two missing ones, which no line connects. @param {(number|null)[]} values @returns {number[]} */
function lonely(values) {
  const own = values.flatMap((value, i) => (value === undefined ? [] : [i])); // undefined: not a time of this series
  return own.filter((i, at) => values[i] !== null && (values[own[at - 1]] ?? null) === null && (values[own[at + 1]] ?? null) === null);
}

/** @type {CanvasRenderingContext2D|null} */
let ruler = null;

/** Returns the width of the widest line of these labels, CSS px. @param {string[]|null|undefined} texts @param {string} font */
function widest(texts, font) {
  ruler ??= document.createElement("canvas").getContext("2d");
  if (!ruler || !texts) return 0;
  ruler.font = font;
  const pen = ruler;
  return Math.max(0, ...texts.flatMap((text) => String(text ?? "").split("\n")).map((line) => pen.measureText(line).width));
}

/** True if the time axis needs a line for days. @param {[number, number]} whole */
function days([from, to]) {
  return day(from * 1000) !== day(to * 1000);
}

/** Labels of the time axis. @param {number[]} at epoch s @param {number} step between two, s @returns {string[]} */
function times(at, step) {
  return at.map((s, i) => {
    const ms = s * 1000;
    if (step >= DAY_S) return day(ms);
    const text = step < 60 ? clock(ms) : minute(ms);
    const newDay = i > 0 && day(ms) !== day(at[i - 1] * 1000);
    return newDay ? `${text}\n${day(ms)}` : text;
  });
}
