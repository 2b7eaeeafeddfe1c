"""People and programs that ask: identities, roles, and what each may do and see.

Read `identity` (levels, roles, identities), `route_rules` (declarations of handlers), `audit_log`, `passwords`,
`access_file` (configuration), `token_file`, `failed_logins`, `oidc` (OpenID Connect), `authenticator` (credentials to
identity) and `scoped_store` (data that a role may see). No web framework: the API, the alert engine, the service Matrix
and the command line share it.
"""
