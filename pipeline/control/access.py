"""Access lists of our nodes in ZooKeeper: for the platform alone, except where applications register."""

from __future__ import annotations

from collections.abc import Iterator

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import Permissions, make_acl, make_digest_acl

from artimon.runtime.zookeeper_client import child_names
from pipeline.control.control_tree import CALL_S

ROOT = "/artimon"
REGISTRATIONS = ("/artimon/hosts", "/artimon/contexts")
"""Below the children of these nodes applications register."""
_MAX_CONTEXT_CHECKS = 32
"""Most nodes below the root that `is_open` checks; usually there are about 20."""
OPEN_ACCESS_WARNING = (
    "every client that reaches ZooKeeper may change its nodes (docs/security.md): set ARTIMON_ZOOKEEPER_AUTH for every "
    "process and run `artimon config secure`"
)


def restrict_access(client: KazooClient, digest: str, closed: bool = False) -> int:
    """Set the user of `digest` (user:password), which the client must have authenticated, as owner of all our nodes;
    returns their number. Unauthenticated applications may register below REGISTRATIONS, unless `closed`. Later nodes of
    the platform are its own from the start. Raises KazooException, KazooTimeoutError."""
    user, _, password = digest.partition(":")
    owner = make_digest_acl(user, password, all=True)
    guests = make_acl("world", "anyone", read=True, create=True)
    for path in REGISTRATIONS:
        client.ensure_path(path, acl=[owner])
    count = 0
    for path in _walk(client, ROOT):
        open_to_guests = not closed and (path in REGISTRATIONS or path.rpartition("/")[0] in REGISTRATIONS)
        try:
            client.set_acls_async(path, [owner, guests] if open_to_guests else [owner]).get(timeout=CALL_S)
        except NoNodeError:
            continue
        count += 1
    return count


def is_open(client: KazooClient) -> bool | None:
    """Return True if every client may change the root of our tree or a node directly below it, except that of
    applications; None without a tree. Needs few calls, for frequent checks. Raises KazooException,
    KazooTimeoutError."""
    names = child_names(client, ROOT, timeout_s=CALL_S)
    if not names:
        return None
    paths = [ROOT, *(f"{ROOT}/{name}" for name in names[:_MAX_CONTEXT_CHECKS])]
    return any(_is_open(client, path) for path in paths if path not in REGISTRATIONS)


def open_nodes(client: KazooClient) -> list[str]:
    """Return our nodes, except those of applications, that every client may write or read."""
    found = []
    for path in _walk(client, ROOT):
        if path in REGISTRATIONS or path.startswith(tuple(f"{one}/" for one in REGISTRATIONS)):
            continue
        if _is_open(client, path, Permissions.ALL):
            found.append(path)
    return found


def _is_open(client: KazooClient, path: str, perms: int = Permissions.ALL & ~Permissions.READ) -> bool:
    try:
        acls, _ = client.get_acls_async(path).get(timeout=CALL_S)
    except NoNodeError:
        return False
    return any(acl.id.scheme == "world" and acl.perms & perms for acl in acls)


def _walk(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in child_names(client, path, timeout_s=CALL_S):
        yield from _walk(client, f"{path}/{name}")
