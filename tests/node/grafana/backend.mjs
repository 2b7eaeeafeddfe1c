// Stands for the part of Grafana between the browser and a Prometheus: resources are passed on, queries of panels become
// requests of the API, and its answers become frames. Grafana has this part in Go; here is as much as the tests need.
import { rangeUtil, renderLegendFormat } from '@grafana/data';
import { from } from 'rxjs';

const MAX_POINTS = 11_000;
const RESOURCES = /^\/api\/datasources\/uid\/[^/]+\/resources\/?(.*)$/;

export class Backend {
  requests = [];

  constructor(address, scrapeInterval) {
    this.address = address;
    this.scrapeMs = rangeUtil.intervalToMs(scrapeInterval);
  }

  // What a data source calls. An answer that is no success is an error with a status, as Grafana has it.
  fetch(options) {
    return from(this.answer(options));
  }

  async answer(options) {
    const resource = RESOURCES.exec(options.url);
    if (resource) return this.ask(options.method ?? 'GET', `/${resource[1]}`, options.params ?? options.data);
    if (!options.url.startsWith('/api/ds/query')) throw { status: 404, data: {}, config: options };
    const results = {};
    for (const query of options.data.queries) {
      results[query.refId] = await this.panel(query, Number(options.data.from), Number(options.data.to));
    }
    return { status: 200, data: { results }, config: options };
  }

  async ask(method, path, parameters) {
    const form = new URLSearchParams(parameters ?? {});
    const sent = { method, headers: { connection: 'close' } };
    if (method === 'POST') sent.body = form;
    this.requests.push(`${method} ${path}`);
    const answer = await fetch(this.address + path + (method === 'POST' ? '' : `?${form}`), sent);
    const text = await answer.text();
    const data = text.startsWith('{') ? JSON.parse(text) : { message: text };
    if (!answer.ok) throw { status: answer.status, statusText: answer.statusText, data, config: { url: path } };
    return { status: answer.status, ok: true, data };
  }

  async panel(query, from, to) {
    const stepMs = this.step(query, from, to);
    const expr = this.expand(query, stepMs, to - from);
    const align = (ms) => Math.floor(ms / stepMs) * stepMs;
    const path = query.instant ? '/api/v1/query' : '/api/v1/query_range';
    const times = query.instant
      ? { time: to / 1000 }
      : { start: align(from) / 1000, end: align(to) / 1000, step: stepMs / 1000 };
    const executed = `Expr: ${expr}\nStep: ${rangeUtil.secondsToHms(stepMs / 1000)}`;
    try {
      if (query.exemplar) await this.ask('POST', '/api/v1/query_exemplars', { query: expr, ...times });
      const { data } = await this.ask('POST', path, { query: expr, ...times });
      return { status: 200, frames: frames(query, data.data, stepMs, executed, data.warnings ?? []) };
    } catch (problem) {
      if (!problem.data) throw problem;
      return { status: problem.status, error: problem.data.error, frames: [] };
    }
  }

  step(query, from, to) {
    const fixed = /^\d/.test(query.interval ?? '') ? rangeUtil.intervalToMs(query.interval) : this.scrapeMs;
    const safe = rangeUtil.roundInterval((to - from) / MAX_POINTS);
    return Math.max(fixed, safe, rangeUtil.roundInterval((to - from) / (query.maxDataPoints ?? MAX_POINTS)));
  }

  expand(query, stepMs, rangeMs) {
    const rateMs = Math.max(stepMs + this.scrapeMs, 4 * this.scrapeMs);
    const values = {
      __interval_ms: stepMs,
      __interval: `${stepMs}ms`,
      __range_s: Math.round(rangeMs / 1000),
      __range_ms: rangeMs,
      __range: `${Math.round(rangeMs / 1000)}s`,
      __rate_interval: rangeUtil.secondsToHms(rateMs / 1000),
    };
    return query.expr.replace(/\$\{?(__\w+)\}?/g, (text, name) => values[name] ?? text);
  }
}

function frames(query, { resultType, result }, stepMs, executedQueryString, warnings) {
  const notices = warnings.map((text) => ({ severity: 'warning', text }));
  const meta = { type: 'timeseries-multi', custom: { resultType }, executedQueryString, notices };
  const rows = resultType === 'scalar' ? [{ metric: {}, value: result }] : result;
  return rows.map(({ metric, value, values }) => {
    const points = values ?? [value];
    return {
      schema: {
        refId: query.refId,
        meta,
        fields: [
          { name: 'Time', type: 'time', config: { interval: stepMs } },
          { name: 'Value', type: 'number', labels: metric, config: { displayNameFromDS: legend(query, metric) } },
        ],
      },
      data: { values: [points.map(([at]) => at * 1000), points.map(([, text]) => number(text))] },
    };
  });
}

function legend(query, labels) {
  if (query.legendFormat && query.legendFormat !== '__auto') return renderLegendFormat(query.legendFormat, labels);
  const { __name__ = '', ...others } = labels;
  const pairs = Object.entries(others).map(([name, value]) => `${name}="${value}"`);
  return __name__ + (pairs.length || !__name__ ? `{${pairs.join(', ')}}` : '');
}

const number = (text) => Number(text.replace('Inf', 'Infinity'));
