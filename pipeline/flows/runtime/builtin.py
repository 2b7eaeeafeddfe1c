"""Built-in components: those that the modules of these packages declare."""

from __future__ import annotations

from pipeline.flows import channels, encodings, groups, interceptors, sinks, sources
from pipeline.flows.registry import Part, Registry, declared_in

_DECLARED = {
    Part.SOURCE: sources,
    Part.CHANNEL: channels,
    Part.SINK: sinks,
    Part.INTERCEPTOR: interceptors,
    Part.GROUP: groups,
    Part.ENCODING: encodings,
}


def builtin() -> Registry:
    """Return a registry of the built-in components; it finds those of entry points itself."""
    registry = Registry()
    for part, module in _DECLARED.items():
        registry.add(part, *declared_in(module))
    return registry
