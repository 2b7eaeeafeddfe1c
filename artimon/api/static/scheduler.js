// Timer of all polled data. A feed has at most one running request; while one runs, or the tab is hidden, its turn is
// skipped and not repeated later.

import { ApiError } from "./api.js";

const TICK_MS = 1000;
const LONGEST_MS = 120_000;
/** First and longest retry delay after a refused connection; short, because such retries cost the server nothing. */
const REFUSED_MS = 1000, REFUSED_LONGEST_MS = 10_000;
/** Allowance for a late turn and the duration of an answer. */
const SLACK_MS = 2000;

/**
 * @template T
 * @typedef {object} Source
 * @property {(signal: AbortSignal) => Promise<T>} load
 * @property {(data: T) => void} show draws an answer
 * @property {(error: ApiError) => void} [fail] an answer did not come
 * @property {(feed: Feed<T>) => void} age called each second to show the age of the answer
 * @property {number} [longest_ms] longest wait after errors
 * @property {() => number} [least_ms] least wait between two answers, for those that change slowly
 */

/** @template T */
export class Feed {
  /** @param {Source<T>} source */
  constructor(source) {
    this.source = source;
    this.running = false;
    this.failures = 0;
    /** Consecutive refused connections. */
    this.refusals = 0;
    /** Arrival time of the shown answer, epoch ms; 0: none yet. */
    this.shown_ms = 0;
    /** @type {ApiError|null} */
    this.error = null;
    this.due_ms = 0;
    this.enabled = true;
    this.interval_ms = 0;
    this.abort = new AbortController();
  }

  /** Sends a request now, unless one runs. */
  async refresh() {
    if (this.running) return;
    const mine = this.abort;
    this.running = true;
    this.source.age(this);
    try {
      const data = await this.source.load(mine.signal);
      if (mine === this.abort) this._done(data);
    } catch (problem) {
      if (mine === this.abort) this._failed(problem);
    } finally {
      if (mine === this.abort) {
        this.running = false;
        this._plan();
        this.source.age(this);
      }
    }
  }

  /** Aborts the running request and sends a new one, because the query has changed. */
  restart() {
    this.stop();
    this.failures = this.refusals = 0;
    this.error = null;
    return this.refresh();
  }

  /** Aborts the running request. */
  stop() {
    this.abort.abort();
    this.abort = new AbortController();
    this.running = false;
  }

  /** True if the shown answer is stale: after an error, or two turns without an answer. */
  get stale() {
    if (this.error) return true;
    return this.interval_ms > 0 && this.shown_ms > 0 && Date.now() - this.shown_ms > 2 * Math.max(this.interval_ms, this.least_ms) + SLACK_MS;
  }

  get least_ms() {
    return this.source.least_ms?.() ?? 0;
  }

  /** @param {T} data */
  _done(data) {
    this.failures = this.refusals = 0;
    this.error = null;
    this.shown_ms = Date.now();
    this.source.show(data);
  }

  /** @param {unknown} problem */
  _failed(problem) {
    this.failures += 1;
    this.error = problem instanceof ApiError ? problem : new ApiError(`the page failed: ${problem}`, -1);
    this.refusals = this.error.refused ? this.refusals + 1 : 0;
    if (this.error.status === -1) console.error(problem);
    this.source.fail?.(this.error);
  }

  /** Schedules the next turn. */
  _plan() {
    const wait = this.error ? this._patience() : this.interval_ms;
    this.due_ms = Date.now() + Math.max(wait, this.error?.retry_ms ?? 0);
  }

  /** Retry delay after an error, ms: exponential back-off, shorter for refused connections. */
  _patience() {
    if (this.refusals) return Math.min(REFUSED_LONGEST_MS, REFUSED_MS * 2 ** Math.min(this.refusals - 1, 6));
    return Math.min(this.source.longest_ms ?? LONGEST_MS, this.interval_ms * 2 ** Math.min(this.failures, 6));
  }
}

export class Scheduler {
  constructor() {
    /** @type {Feed<any>[]} */
    this.feeds = [];
    this.interval_ms = 10_000;
    setInterval(() => this.tick(), TICK_MS);
    document.addEventListener("visibilitychange", () => this.tick());
  }

  /** @param {Feed<any>} feed */
  add(feed) {
    feed.interval_ms = this.interval_ms;
    this.feeds.push(feed);
  }

  /** @param {number} interval_ms 0: only when asked */
  every(interval_ms) {
    this.interval_ms = interval_ms;
    for (const feed of this.feeds) {
      feed.interval_ms = interval_ms;
      feed.due_ms = Math.min(feed.due_ms, Date.now() + interval_ms);
    }
  }

  tick() {
    if (document.hidden) return;
    for (const feed of this.feeds) {
      const first = feed.shown_ms === 0 && feed.failures === 0;
      const wanted = feed.enabled && (this.interval_ms > 0 || first) && Date.now() >= Math.max(feed.due_ms, feed.shown_ms && feed.shown_ms + feed.least_ms);
      if (wanted && !feed.running) void feed.refresh();
      else feed.source.age(feed);
    }
  }
}

/**
 * Shows the age of the answer in a line, and if it is stale.
 * @param {HTMLElement} line
 * @param {Feed<any>} feed
 * @param {{ago: (ms: number) => string}} words
 */
export function sayAge(line, feed, words) {
  const age = feed.shown_ms ? words.ago(Date.now() - feed.shown_ms) : "";
  line.classList.toggle("stale", feed.stale);
  line.title = feed.error ? feed.error.message : "";
  if (feed.stale) line.textContent = age ? `stale, ${age} old` : feed.error ? feed.error.message : "";
  else line.textContent = age ? `${age} ago` : "loading…";
}
