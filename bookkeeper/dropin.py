"""Drop-in files for programs that cannot be polled: cron jobs, scripts, programs that must not listen.

    from bookkeeper import dropin

    with dropin.Writer("nightly"):
        bookkeeper.add_to_integer_var("backup.files", {"volume": "/home"}, 1)

The end of the block writes all variables to `/var/run/artimon/nightly.artimon` (ARTIMON_DROPIN), where the agent of the
host reads them.
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
    `labels` contain one. `folder`: default ARTIMON_DROPIN, else /var/run/artimon; it must exist. `labels` are added to
    every variable that lacks them. `book`: default the object behind the module's functions; it stays offline from
    then on, because its values would arrive twice. `mode`: file mode; the agent must be able to read the file. `sync`:
    fsync the new file before it replaces the old one.

    Use it in a `with` block, which ends with a last write even after an exception; or call `write`; or `start` it to
    write every `period_s` in the background and at exit. Only one process may write a name: a forked child must make
    a Writer with another name. Raises DropinError; errors of the operating system are converted to it."""

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
    """Write the variables of this process to a drop-in file once and return their number."""
    return Writer(name, folder, book=book).write()
