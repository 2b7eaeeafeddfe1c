"""Real servers and our own processes on one machine: `artimon up`, `down`, `status`, `doctor`, and tests.

Modules in reading order: `stack_part` (description of a server), `child_process`, `orphan_reaper`, `launch` (one child
process), `part_runner` (state machine of one part), `supervisor` (all parts), `zookeeper_part`, `kafka_part`,
`hdfs_parts`, `artimon_parts`, `example_parts`, `part_catalogue` (list of the parts), `stack` (a whole stack),
`stack_state` and `stack_location` (addresses of a running stack), `hop_limits` and `status` (its health), `doctor`,
`foreground` (the commands). Helpers: `java`, `jars`, `class_recording`, `port_leases`, `topics`, and for mail `smtp`,
`mailbox`, `mail_view`. `demo_services`, `demo_fleet`, `demo_sender`, `demo_history` and `demo_files`: the
fleet of `artimon demo`.

May import pipeline, query_dsl, sources, varstore, artimon.model and artimon.runtime, never artimon.api. Order inside:
the contract in pyproject.toml."""
