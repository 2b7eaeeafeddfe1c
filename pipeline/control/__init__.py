"""Control plane of an agent: configuration and commands through ZooKeeper. docs/control.md.

In reading order: `config_document` and `setting_parsers` (content of a configuration), `control_tree` (its nodes),
`signatures`, `access` and `admission` (trust), `rollout` and `agent_commands` (pure), `control_plane` (the thread),
`agent_controls` (its interface to the agent), `group_directory` (members of groups).
"""
