"""Ready-made counting for servers, task queues, logging and the interpreter.

Each module needs its framework only when it is used, and nothing here is imported by `import bookkeeper`."""
