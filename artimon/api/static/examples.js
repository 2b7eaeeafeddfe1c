// Example queries for new users.

export const EXAMPLES = [
  { text: "fetch('host.cpu.ms{mode!=\"idle\"}').rate().sum(by=[\"host\", \"mode\"])", about: "what the processors do, ms a second" },
  { text: "fetch('host.load')", about: "load of each host" },
  { text: "fetch('host.memory.available.bytes') / fetch('host.memory.total.bytes')", about: "share of memory that is free" },
  { text: "fetch('host.network.received.bytes').rate().sum(by=[\"interface\"])", about: "bytes received a second" },
  { text: "fetch('artimon.endpoint.up').min(by=[\"context\"])", about: "which applications answer" },
];
