"""HDFS under a name service with two NameNodes, of which the first is unreachable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from artimon.runtime.settings import child_environment

pytestmark = pytest.mark.stack
ROOT = Path(__file__).resolve().parents[2]
SITE = {
    "dfs.nameservices": "company",
    "dfs.ha.namenodes.company": "a,b",
    "dfs.namenode.rpc-address.company.a": "127.0.0.1:1",
    "dfs.client.failover.proxy.provider.company": (
        "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    ),
}
PROGRAM = """
import sys
from artimon.runtime import file_access as files
from artimon.rawtable import table_state as states
from artimon.rawtable.commit import RawTable
from artimon.rawtable.head import HeadReader
from artimon.rawtable.table_state import RawState
files.check_reachable(sys.argv[1])
table = RawTable(sys.argv[1])
table.append([], RawState(), states.close_gaps(RawState(), "w", "c", "t", "id", 1, []))
print(HeadReader(sys.argv[1]).head()[1].append)
"""


def test_the_table_can_be_used_under_a_name_service(tmp_path: Path, hdfs: str) -> None:
    values = {**SITE, "dfs.namenode.rpc-address.company.b": urlsplit(hdfs).netloc}
    rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{rows}</configuration>")
    (tmp_path / "core-site.xml").write_text("<configuration></configuration>")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"hdfs://company/{tmp_path.name}"],
        env=child_environment({"HADOOP_CONF_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["1"]
