"""Real servers and our own processes on one machine: `artimon up`, `down`, `status`, `doctor`, and tests.

Parts in reading order: `part` (description of a server), `process`, `guard`, `launch` (one child process), `runner`
(life of one part), `supervisor` (all parts), `zookeeper`, `kafka`, `hdfs`, `own`, `examples`, `parts` (the parts there
are), `stack` (a whole one), `state` and `locate` (places of a running one), `lag` and `status` (its condition),
`doctor`, `foreground` (the commands). Beside them `java`, `jars`, `ports`, `topics`, and the local mail: `smtp`,
`mailbox`, `mail_view`.

May import pipeline, query_dsl, varstore, artimon.model and artimon.runtime, never artimon.api. Order inside: the
contract in pyproject.toml."""
