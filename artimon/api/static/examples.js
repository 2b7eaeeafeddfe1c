// Example queries for new users, in both languages.

export const EXAMPLES = [
  { text: "fetch('host.cpu.ms{mode!=\"idle\"}').rate().sum(by=[\"host\", \"mode\"])", about: "what the processors do, ms a second" },
  { text: "fetch('host.load')", about: "load of each host" },
  { text: "fetch('host.memory.available.bytes') / fetch('host.memory.total.bytes')", about: "share of memory that is free" },
  { text: "fetch('host.network.received.bytes').rate().sum(by=[\"interface\"])", about: "bytes received a second" },
  { text: "fetch('artimon.endpoint.up').min(by=[\"context\"])", about: "which applications answer" },
];

export const PROMQL_EXAMPLES = [
  { text: 'sum by (host, mode) (rate({"host.cpu.ms", mode!="idle"}[5m]))', about: "what the processors do, ms a second" },
  { text: '{"host.load"}', about: "load of each host" },
  { text: '{"host.memory.available.bytes"} / on (host) {"host.memory.total.bytes"}', about: "share of memory that is free" },
  { text: 'min by (context) ({"artimon.endpoint.up"})', about: "which applications answer" },
];
