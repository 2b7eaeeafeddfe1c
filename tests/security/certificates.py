"""Certificates for tests, made by the openssl of the system: an authority, servers, clients, expired, revoked ones."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_CONFIG = """
[ca]
default_ca = here
[here]
dir = {folder}
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
policy = any
default_crl_days = 30
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = name
prompt = no
[name]
commonName = test
"""


def openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise AssertionError(f"openssl {' '.join(words)}: {done.stderr}")


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: str
    key: str


class Authority:
    """Signs, and revokes. Keys on P-256: making them takes no time."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "openssl.cnf").write_text(_CONFIG.format(folder=folder))
        (folder / "index.txt").write_text("")
        (folder / "serial").write_text("1000\n")
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(folder / "ca.key"))
        openssl("req", "-x509", *key, "-subj", f"/CN={name}", "-days", "30", "-out", str(folder / "ca.pem"))
        self.crl()

    @property
    def certificate(self) -> str:
        return str(self.folder / "ca.pem")

    def sign(self, name: str, names: str = "DNS:localhost,IP:127.0.0.1", expired: bool = False) -> Pair:
        """A certificate of that common name and those alternative names."""
        config, request = str(self.folder / "openssl.cnf"), self.folder / f"{name}.csr"
        made = Pair(str(self.folder / f"{name}.pem"), str(self.folder / f"{name}.key"))
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", made.key)
        extension = ("-addext", f"subjectAltName={names}")
        openssl("req", "-new", "-config", config, *key, "-subj", f"/CN={name}", *extension, "-out", str(request))
        dates = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z") if expired else ("-days", "20")
        paths = ("-in", str(request), "-out", made.certificate)
        openssl("ca", "-batch", "-notext", "-config", config, *dates, *paths)
        return made

    def crl(self, revoke: Pair | None = None) -> str:
        """The list of revoked certificates, with one more."""
        config, path = str(self.folder / "openssl.cnf"), self.folder / "crl.pem"
        if revoke is not None:
            openssl("ca", "-config", config, "-revoke", revoke.certificate)
        fresh = path.with_suffix(".new")
        openssl("ca", "-gencrl", "-config", config, "-out", str(fresh))
        fresh.replace(path)
        return str(path)
