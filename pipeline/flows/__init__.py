"""Flows: chains of source, interceptors, channel and sink in an agent. docs/flows.md.

In reading order: `event` (events), `spi` (interfaces of the components), `options`, `context` and
`registry` (declaring and building components), then the packages of components, `config` (files of flows), `lifecycle`
and `runtime`. May import everything below it in pipeline; components import the
interfaces, never the runtime.
"""
