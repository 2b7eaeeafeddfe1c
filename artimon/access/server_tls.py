"""TLS of a server for people: a certificate, no certificates of clients; renewed files are read without a restart."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from artimon.runtime.settings import SettingsError
from bookkeeper.rpc.tls import FileStamp, file_stamp

log = logging.getLogger(__name__)


class ServerTls:
    """Context of a server. `reload` is called from one thread."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises SettingsError for files that cannot be used."""
        self._certificate, self._key = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._stamps = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"tls: {certificate}, {key}: {error}: give PEM files that belong together, without a password"
            ) from None

    def reload(self) -> None:
        """Read changed files for new connections; files that cannot be used are logged, and the old ones stay."""
        try:
            if self._stamps != self._stamp():
                self._stamps = self._read()
                log.info("the certificate was reloaded")
        except (OSError, ValueError) as error:
            log.warning("the certificate was not reloaded, the old one stays in use: %s", error)

    def _read(self) -> tuple[FileStamp, FileStamp]:
        stamps = self._stamp()
        self.context.load_cert_chain(self._certificate, self._key, password=_no_password)
        return stamps

    def _stamp(self) -> tuple[FileStamp, FileStamp]:
        return file_stamp(str(self._certificate)), file_stamp(str(self._key))


def _no_password() -> str:
    raise ValueError("the key has a password: use a key without one")
