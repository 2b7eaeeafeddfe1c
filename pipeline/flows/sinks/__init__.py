"""Sinks: the end of a flow, or the way to its next agent. Each file declares its own; a new sink is one file."""
