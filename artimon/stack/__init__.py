"""Real servers and our own processes on one machine: `artimon up`, `down`, `status`, `doctor`, and tests.

Modules in reading order: `part` (description of a server), `process`, `guard`, `launch` (one child process), `runner`
(state machine of one part), `supervisor` (all parts), `zookeeper`, `kafka`, `hdfs`, `own`, `examples`, `parts` (list of
the parts), `stack` (a whole stack), `state` and `locate` (addresses of a running stack), `lag` and `status` (its
health), `doctor`, `foreground` (the commands). Helpers: `java`, `jars`, `ports`, `topics`, and the local mail server:
`smtp`, `mailbox`, `mail_view`.

May import pipeline, query_dsl, varstore, artimon.model and artimon.runtime, never artimon.api. Order inside: the
contract in pyproject.toml."""
