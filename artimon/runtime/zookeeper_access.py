"""Checks of the access lists of nodes whose content can make a process delete data or take over a configuration."""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import Permissions, make_digest_acl

from artimon.runtime.settings import zookeeper_auth

CALL_TIMEOUT_S = 5.0


def is_owned(client: KazooClient, path: str, digest: str) -> bool:
    """Return True if only the user of `digest` (user:password) may change the node or its children; False if the node
    does not exist. Raises KazooException, KazooTimeoutError."""
    user, _, password = digest.partition(":")
    owner = make_digest_acl(user, password, all=True).id
    try:
        acls, _ = client.get_acls_async(path).get(timeout=CALL_TIMEOUT_S)
    except NoNodeError:
        return False
    writers = [acl.id for acl in acls if acl.perms & ~Permissions.READ]
    return bool(writers) and all(one == owner for one in writers)


def is_trusted(client: KazooClient, path: str) -> bool:
    """Return True if published acks in this node may delete data. A process with its own ZooKeeper user trusts only
    nodes that no other user may write. Raises KazooException, KazooTimeoutError."""
    digest = zookeeper_auth()
    return not digest or is_owned(client, path, digest)
