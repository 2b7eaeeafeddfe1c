"""Groups of sinks behind the interface of one."""
