"""Control plane of an agent: configuration and commands through ZooKeeper. docs/control.md.

In reading order: `document` and `settings` (content of a configuration), `tree` (its nodes), `signatures`, `access`
and `admission` (trust), `decide` and `commands` (pure), `plane` (the thread), `runtime` (its interface to the agent),
`directory` (members of groups).
"""
