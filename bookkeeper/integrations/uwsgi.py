"""Hooks for uWSGI, which forks and ends its workers in its own ways. Import it before anything is counted:

    import bookkeeper.integrations.uwsgi

uWSGI runs Python's threads only with `enable-threads = true`; without it no agent can poll a process. Without
`py-call-osafterfork` it forks without notifying Python. So the master must run nothing that a worker would inherit half
done, and is not an endpoint: its values are not collected. A worker is an endpoint from its start, with all counts at
0, and hands over its last values when it ends in order (`worker-reload-mercy` must allow 5 s).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import bookkeeper

MASTER = 0


def install(uwsgi: Any) -> None:
    """Sets the hooks of the module `uwsgi`, which exists inside uWSGI only; existing hooks run first."""
    before, at_end = getattr(uwsgi, "post_fork_hook", None), getattr(uwsgi, "atexit", None)
    book, pid = bookkeeper.default(), os.getpid()
    online = book.online
    if uwsgi.worker_id() == MASTER:
        book.online = False

    def forked() -> None:
        if before is not None:
            before()
        if os.getpid() != pid:
            book.after_fork_in_child()  # running it twice is harmless: nothing is counted yet
        book.online = online
        book.start()

    def ended() -> None:
        if at_end is not None:
            at_end()
        book.close()

    uwsgi.post_fork_hook, uwsgi.atexit = forked, ended


def _install() -> None:
    try:
        module = import_module("uwsgi")  # made by uWSGI itself
    except ImportError:
        return
    install(module)


_install()
