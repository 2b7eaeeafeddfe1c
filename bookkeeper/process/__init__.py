"""The process as Artimon sees it: an object that counts, an endpoint that agents poll, a znode that registers it.

Read `bookkeeper` (use, fork and exit), `process_endpoint` (the background thread), `ephemeral_node`, `instances` and
`addresses`. May import every other package of bookkeeper but `integrations`.
"""
