"""Flows: chains of source, interceptors, channel and sink in an agent. docs/flows.md.

In reading order: `event` (events and parcels), `spi` (interfaces of the components), `options`, `context` and
`registry` (declaring and building components), then the packages of components, `config` (files of flows), `lifecycle`
and the runtime: `flow`, `flows`, `runner`, `watch`. May import everything below it in pipeline; components import the
interfaces, never the runtime.
"""
