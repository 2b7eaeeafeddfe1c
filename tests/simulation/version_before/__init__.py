"""Coordination of agents in the version before (commit 86a75a83): `group_leases` and `group_assignment`, unchanged but
for imports and functions that nothing here calls. Never change these files; replace them when the version before is
another one."""
