// Grafana's data source for Prometheus, as its browser runs it: node OUT ADDRESS SCRAPE_INTERVAL
//
// Calls have a `range` of two times in ms. Answers are plain values; `requests` lists what reached the API since the
// call before.
import './browser.mjs';
import { createInterface } from 'node:readline';
import { dateTime, LoadingState } from '@grafana/data';
import { setBackendSrv, setDataSourceSrv, setEchoSrv, setTemplateSrv } from '@grafana/runtime';
import { PrometheusDatasource } from '@grafana/prometheus';
import { lastValueFrom } from 'rxjs';
import { Backend } from './backend.mjs';

const [address, scrapeInterval] = process.argv.slice(2);
const backend = new Backend(address, scrapeInterval);
const settings = {
  id: 1,
  uid: 'artimon',
  type: 'prometheus',
  name: 'Artimon',
  access: 'proxy',
  url: '/api/datasources/proxy/uid/artimon',
  jsonData: { httpMethod: 'POST', timeInterval: scrapeInterval, prometheusType: 'Prometheus', prometheusVersion: '2.24.0' },
  meta: { id: 'prometheus', name: 'Prometheus', info: {}, module: '', baseUrl: '' },
};

// Variables of the dashboard: name -> value, or values of one with several.
let variables = {};
const templates = {
  replace(text, scoped = {}, format = undefined) {
    return String(text ?? '').replace(/\$(\w+)|\$\{(\w+)\}/g, (whole, short, long) => {
      const name = short ?? long;
      if (scoped?.[name] !== undefined) return String(scoped[name].value);
      if (variables[name] === undefined) return whole;
      const value = variables[name];
      return typeof format === 'function' ? format(value, { multi: Array.isArray(value) }) : String(value);
    });
  },
  containsTemplate: (text) => /\$/.test(text ?? ''),
  getVariables: () => [],
  getAdhocFilters: () => [],
  updateTimeRange: () => undefined,
};

setBackendSrv(backend);
setDataSourceSrv({ getInstanceSettings: () => settings, get: async () => source, getList: () => [settings] });
setEchoSrv({ addEvent() {}, addBackend() {}, flush() {} });
setTemplateSrv(templates);
const source = new PrometheusDatasource(settings, templates);

function timeRange([from, to]) {
  const both = { from: dateTime(from), to: dateTime(to) };
  return { ...both, raw: both };
}

function request({ range, targets, app = 'dashboard', intervalMs = 15_000, maxDataPoints = 1_000, filters = [] }) {
  return {
    app,
    requestId: 'Q1',
    panelId: 1,
    timezone: 'utc',
    range: timeRange(range),
    interval: `${intervalMs}ms`,
    intervalMs,
    maxDataPoints,
    targets: targets.map((target) => ({ datasource: { uid: 'artimon', type: 'prometheus' }, ...target })),
    scopedVars: {},
    filters,
    startTime: Date.now(),
  };
}

function plain(frame) {
  return {
    refId: frame.refId,
    type: frame.meta?.preferredVisualisationType ?? null,
    notices: (frame.meta?.notices ?? []).map((one) => one.text),
    fields: frame.fields.map((field) => ({
      name: field.config?.displayNameFromDS ?? field.config?.displayName ?? field.name,
      labels: field.labels ?? null,
      values: Array.from(field.values, (value) => (Number.isNaN(value) ? 'NaN' : value)),
    })),
  };
}

const calls = {
  async start({ range }) {
    const provider = source.languageProvider;
    await source.init();
    await provider.start(timeRange(range));
    await source.loadRules();
    return {
      metrics: provider.retrieveMetrics(),
      histograms: provider.retrieveHistogramMetrics(),
      labels: provider.retrieveLabelKeys(),
      metadata: provider.retrieveMetricsMetadata(),
      exemplars: source.exemplarsAvailable,
      rules: source.ruleMappings,
    };
  },
  variables: ({ values }) => void (variables = values),
  find: async ({ query, range }) =>
    (await source.metricFindQuery(query, { range: timeRange(range) })).map((one) => one.text),
  labels: ({ range, match }) => source.languageProvider.queryLabelKeys(timeRange(range), match ?? undefined),
  values: ({ range, label, match }) =>
    source.languageProvider.queryLabelValues(timeRange(range), label, match ?? undefined),
  tags: async ({ range, filters }) =>
    (await source.getTagKeys({ filters, timeRange: timeRange(range), queries: [] })).map((one) => one.text),
  tag_values: async ({ range, key, filters }) =>
    (await source.getTagValues({ key, filters, timeRange: timeRange(range), queries: [] })).map((one) => one.text),
  async query(asked) {
    const answer = await lastValueFrom(source.query(request(asked)));
    return {
      done: answer.state === undefined || answer.state === LoadingState.Done,
      errors: (answer.errors ?? (answer.error ? [answer.error] : [])).map((one) => one.message),
      frames: answer.data.map(plain),
    };
  },
  annotations: async ({ range, annotation }) => {
    const prepared = source.annotations.prepareAnnotation(annotation);
    const { data } = await lastValueFrom(source.query(request({ range, targets: [prepared.target] })));
    const found = await lastValueFrom(source.annotations.processEvents(prepared, data));
    return found.map(({ time, timeEnd, title, text, tags }) => ({ time, timeEnd, title, text, tags }));
  },
  requests: () => backend.requests.splice(0),
};

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    let told;
    try {
      told = { value: (await calls[asked.call](asked)) ?? null };
    } catch (problem) {
      told = { error: String(problem?.stack ?? JSON.stringify(problem)) };
    }
    process.stdout.write(`${JSON.stringify(told)}\n`);
  }
  process.exit(0);
}

main();
