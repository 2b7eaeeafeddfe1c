"""The process as Artimon sees it: an object that counts, an endpoint that is polled, a znode that names it.

Read `bookkeeper` (through use, fork and exit), `endpoint` (the background thread), `ephemeral_node`, `instances` and
`addresses`. May import every other package of bookkeeper but `integrations`.
"""
