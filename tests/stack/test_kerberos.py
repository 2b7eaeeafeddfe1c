"""HDFS with Kerberos, as far as its clients without Java go: a ticket, a delegation token, and neither."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from artimon.stack.port_leases import PortLeases
from artimon.stack.stack import Stack
from tests.programs import require
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.timeout(900)]
REALM, BASE_PORT = "ARTIMON.TEST", 29_500
USE = """
import os, sys, pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from artimon.runtime import file_access as files
place = sys.argv[1]
files.write_file(f"{place}/plain", b"kept")
assert files.read_file(f"{place}/plain") == b"kept"
write_deltalake(f"{place}/table", pa.table({"n": [1, 2, 3]}))
rows = DeltaTable(f"{place}/table").to_pyarrow_dataset().to_table(use_threads=False)  # see artimon.cli, _Leave
assert rows["n"].to_pylist() == [1, 2, 3]
print("good")
"""


@dataclass(frozen=True)
class Realm:
    """A key distribution centre of its own; `environment` of who asks it."""

    folder: Path
    environment: dict[str, str]

    def keytab(self, *principals: str) -> Path:
        """New keys for these."""
        file = self.folder / f"{principals[0].partition('/')[0]}.keytab"
        for principal in principals:
            self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {file} {' '.join(principals)}")
        return file

    def run(self, *words: str, **more: str) -> None:
        environment = {**os.environ, **self.environment, **more}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder, leases = tmp_path_factory.mktemp("kdc"), PortLeases()
    port = leases.lease(BASE_PORT + 50)
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\nrdns = false\n"
        f"udp_preference_limit = 1\n[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{port}\n}}\n"
        f"[domain_realm]\nlocalhost = {REALM}\n127.0.0.1 = {REALM}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[kdcdefaults]\nkdc_ports = {port}\nkdc_tcp_ports = {port}\n[realms]\n{REALM} = {{\n"
        f" database_name = {folder}/principal\n key_stash_file = {folder}/stash\n acl_file = {folder}/acl\n}}\n"
    )
    center = require("kerberos")
    above = center.path.parent.parent
    if plugins := next(
        above.glob("lib/*/krb5/plugins/kdb"), None
    ):  # unpacked elsewhere, it would look for them in /usr
        with (folder / "kdc.conf").open("a") as file:
            file.write(f"[dbmodules]\n db_module_dir = {plugins}\n")
    places = {
        **center.environment,
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "PATH": f"{above / 'sbin'}:{above / 'bin'}:{os.environ['PATH']}",
    }
    made = Realm(folder, places)
    made.run("kdb5_util", "-r", REALM, "create", "-s", "-P", "master")
    leases.release()
    server = subprocess.Popen(["krb5kdc", "-n", "-r", REALM], env={**os.environ, **places})
    try:
        yield made
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="module")
def guarded(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """HDFS that wants a ticket or a token."""
    service = f"hdfs/localhost@{REALM}"
    keytab = realm.keytab(service, f"HTTP/localhost@{REALM}")
    core = {"hadoop.security.authentication": "kerberos", "hadoop.rpc.protection": "authentication"}
    site = {
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
        "dfs.web.authentication.kerberos.principal": f"HTTP/localhost@{REALM}",
        "dfs.web.authentication.kerberos.keytab": str(keytab),
    }
    for server in ("namenode", "datanode"):
        site |= {f"dfs.{server}.kerberos.principal": service, f"dfs.{server}.keytab.file": str(keytab)}
    options = {
        "core_site": "\n".join(f"{name}={value}" for name, value in core.items()),
        "hdfs_site": "\n".join(f"{name}={value}" for name, value in site.items()),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}")
        with Stack(tmp_path_factory.mktemp("guarded"), ["hdfs"], base_port=BASE_PORT, options=options) as stack:
            yield stack


def use(guarded: Stack, realm: Realm, folder: str, **more: str) -> subprocess.CompletedProcess[str]:
    """hdfs-native and delta-rs in a process of their own."""
    environment = {**os.environ, **realm.environment, "HADOOP_CONF_DIR": str(guarded.data / "hdfs" / "conf"), **more}
    words = [sys.executable, "-c", USE, f"{guarded.hdfs}/{folder}"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_with_a_ticket_a_token_and_neither(guarded: Stack, realm: Realm, tmp_path: Path) -> None:
    none = use(guarded, realm, "none", KRB5CCNAME=str(tmp_path / "none"))
    assert none.returncode != 0
    keytab, tickets = realm.keytab(f"artimon@{REALM}"), str(tmp_path / "tickets")
    realm.run("kinit", "-k", "-t", str(keytab), f"artimon@{REALM}", KRB5CCNAME=tickets)
    with_ticket = use(guarded, realm, "ticket", KRB5CCNAME=tickets)
    assert (with_ticket.returncode, with_ticket.stdout) == (0, "good\n"), with_ticket.stderr
    token = tmp_path / "token"
    context = guarded.context
    java = [str(context.java.program), "-cp", f"{guarded.data}/hdfs/conf:{context.jars}/hdfs/*"]
    java.insert(1, f"-Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}")
    fetch = ["org.apache.hadoop.hdfs.tools.DelegationTokenFetcher", "--renewer", "artimon", str(token)]

    def fetched() -> bool:
        realm.run(*java, *fetch, KRB5CCNAME=tickets)
        return token.exists()

    eventually(fetched, "a delegation token")
    by_token = use(guarded, realm, "token", KRB5CCNAME=str(tmp_path / "none"), HADOOP_TOKEN_FILE_LOCATION=str(token))
    assert (by_token.returncode, by_token.stdout) == (0, "good\n"), by_token.stderr
