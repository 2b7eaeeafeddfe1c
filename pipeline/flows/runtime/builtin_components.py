"""Built-in components: those that the modules of these packages declare."""

from __future__ import annotations

from pipeline.flows import channels, encodings, groups, interceptors, sinks, sources
from pipeline.flows.registry import ComponentKind, Registry

_PACKAGES = {
    ComponentKind.SOURCE: sources,
    ComponentKind.CHANNEL: channels,
    ComponentKind.SINK: sinks,
    ComponentKind.INTERCEPTOR: interceptors,
    ComponentKind.GROUP: groups,
    ComponentKind.ENCODING: encodings,
}


def builtin_registry() -> Registry:
    """Return a registry of the built-in components; it finds those of entry points itself."""
    registry = Registry()
    for part, module in _PACKAGES.items():
        registry.add_package(part, module)
    return registry
