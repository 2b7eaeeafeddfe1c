"""Control plane of an agent: configuration and commands that come by ZooKeeper. docs/control.md.

In reading order: `document` and `settings` (what a configuration is), `tree` (where it stands), `signatures`, `access`
and `admission` (whose word counts), `decide` and `commands` (pure), `plane` (the thread), `runtime` (what it may do to
an agent), `groups` (members of groups).
"""
