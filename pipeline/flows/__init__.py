"""Flows: chains of source, interceptors, channel and sink in an agent. docs/flows.md.

In reading order: `event` (events and parcels), `spi` (what each kind of component does), `options`, `context` and
`registry` (how a component is declared and built), then the packages of components, `config` (files of flows) and the
runtime: `flow`, `flows`, `runner`, `lifecycle`, `watch`. May import everything below it in pipeline; components import
the interfaces, never the runtime.
"""
