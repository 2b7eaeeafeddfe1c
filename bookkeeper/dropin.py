"""Drop-in files for programs that cannot be polled: cron jobs, scripts, programs that must not listen.

    from bookkeeper import dropin

    with dropin.Writer("nightly"):
        bookkeeper.add_to_integer_var("backup.files", {"volume": "/home"}, 1)

At the end of the block all variables stand in `/var/run/artimon/nightly.artimon` (ARTIMON_DROPIN), from where the agent
of the host takes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import bookkeeper
from bookkeeper.export.dropin_file import DropinError, DropinWriter

__all__ = ["DropinError", "Writer", "write"]


class Writer(DropinWriter):
    """Writes the variables of this process into the drop-in file `<folder>/<name>.artimon`.

    `name`: default the context (ARTIMON_CONTEXT, else the program's name); it becomes the label `context` unless
    `labels` give another one. `folder`: default ARTIMON_DROPIN, else /var/run/artimon; it must exist. `labels` go with
    every variable that does not have them. `book`: default the one that the module's functions write to; it is not made
    pollable any more, as its values would come twice. `mode`: of the file; the agent must be able to read it. `sync`:
    the file is on the disk before it takes the place of the old one.

    Use it in a `with` block, which ends with a last write also if it ends with an exception; or call `write`; or
    `start` it, to write every `period_s` in the background and at exit. One process only writes a name: a forked child
    must make a Writer with another name. Raises DropinError, never anything of the operating system."""

    def __init__(
        self,
        name: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        book: bookkeeper.Bookkeeper | None = None,
        mode: int = 0o644,
        sync: bool = False,
    ) -> None:
        chosen = bookkeeper.default() if book is None else book
        super().__init__(name, folder, book=chosen, labels=labels, mode=mode, sync=sync)


def write(
    name: str | None = None, folder: str | os.PathLike[str] | None = None, *, book: bookkeeper.Bookkeeper | None = None
) -> int:
    """Write the variables of this process into a drop-in file once: how many there were."""
    return Writer(name, folder, book=book).write()
