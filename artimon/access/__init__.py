"""People and programs that ask: identities, roles, and what each may do and see.

Read `identity` (levels, roles, identities), `route_rules` (declarations of handlers), `access_file` (configuration), `passwords`,
`token_file`, `failed_logins`, `oidc` (OpenID Connect), `authenticator` (credentials to identity), `scoped_store` (data that a role may see),
and `audit_log`. No web framework: the API, the alert engine, the service Matrix and the command line share it.
"""
