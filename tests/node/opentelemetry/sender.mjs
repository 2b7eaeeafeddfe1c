// Sends metrics by the SDK of OpenTelemetry: node sender.mjs proto|grpc URL delta|cumulative SERVICE
//
// Calls: {"call": "record", "values": [[INSTRUMENT, NUMBER, ATTRIBUTES], …]} and {"call": "flush"}, which answers the
// exports since the last flush: result code (0: the receiver took it) and the points as the exporter got them.
import { createInterface } from 'node:readline';
import { ValueType } from '@opentelemetry/api';
import { OTLPMetricExporter as GrpcExporter } from '@opentelemetry/exporter-metrics-otlp-grpc';
import { OTLPMetricExporter as ProtoExporter } from '@opentelemetry/exporter-metrics-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  AggregationTemporality,
  AggregationType,
  DataPointType,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';

const [protocol, url, temporality, service] = process.argv.slice(2);
const preference = { cumulative: AggregationTemporality.CUMULATIVE, delta: AggregationTemporality.DELTA };
const Exporter = protocol === 'grpc' ? GrpcExporter : ProtoExporter;
const exporter = new Exporter({ url, temporalityPreference: preference[temporality], timeoutMillis: 60_000 });

const exported = [];
const send = exporter.export.bind(exporter);
exporter.export = (metrics, done) =>
  send(metrics, (result) => {
    exported.push({ code: result.code, error: String(result.error ?? ''), metrics: plain(metrics) });
    done(result);
  });

const milliseconds = ([s, ns]) => s * 1000 + Math.floor(ns / 1e6);

function plain({ scopeMetrics }) {
  const families = scopeMetrics.flatMap((scope) => scope.metrics);
  return families.map((one) => ({
    name: one.descriptor.name,
    kind: DataPointType[one.dataPointType],
    delta: one.aggregationTemporality === AggregationTemporality.DELTA,
    points: one.dataPoints.map(({ attributes, startTime, endTime, value }) => ({
      attributes,
      start_ms: milliseconds(startTime),
      end_ms: milliseconds(endTime),
      value,
    })),
  }));
}

const reader = new PeriodicExportingMetricReader({
  exporter,
  exportIntervalMillis: 3_600_000,
  exportTimeoutMillis: 100_000,
});
const provider = new MeterProvider({
  readers: [reader],
  resource: resourceFromAttributes({ 'service.name': service, 'host.name': 'h1' }),
  views: [{ instrumentName: 'fine', aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM } }],
});
const meter = provider.getMeter('app');
const instruments = {
  'orders.placed': meter.createCounter('orders.placed', { valueType: ValueType.INT, description: 'Orders.' }),
  waiting: meter.createUpDownCounter('waiting', { valueType: ValueType.INT }),
  level: meter.createGauge('level', { unit: 'm' }),
  wait: meter.createHistogram('wait', { unit: 's', advice: { explicitBucketBoundaries: [1, 5] } }),
  fine: meter.createHistogram('fine'),
};

const calls = {
  record({ values }) {
    for (const [name, value, attributes] of values) {
      const instrument = instruments[name];
      (instrument.add ?? instrument.record).call(instrument, value, attributes);
    }
  },
  async flush() {
    await provider.forceFlush();
    return exported.splice(0);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let told;
  try {
    told = { value: (await calls[asked.call](asked)) ?? null };
  } catch (problem) {
    told = { error: String(problem?.stack ?? problem) };
  }
  process.stdout.write(`${JSON.stringify(told)}\n`);
}
process.exit(0);
