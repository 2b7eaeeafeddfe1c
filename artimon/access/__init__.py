"""People and programs that ask: principals, roles, and what each may do and see.

Read `principal` (levels, roles, principals), `route_rules` (declarations of handlers), `audit_log`, `passwords`,
`access_file` (configuration), `token_file`, `failed_logins`, `oidc` (OpenID Connect), `authenticator` (credentials to
principal), `scoped_store` (data that a role may see) and `server_tls`. No web framework: the API, the alert engine, the
service Matrix and the command line share it.
"""
