"""The components that come with the platform: those that the modules of these packages declare."""

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
    """Return a registry of everything that comes with the platform; entry points are added to it by themselves."""
    registry = Registry()
    for part, module in _DECLARED.items():
        registry.add(part, *declared_in(module))
    return registry
