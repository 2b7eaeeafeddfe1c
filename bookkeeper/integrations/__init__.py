"""Instrumentation of servers, task queues, logging and the interpreter.

Each module needs its framework only when it is used, and `import bookkeeper` imports none of them."""
