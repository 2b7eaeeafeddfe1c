"""The work of ./scripts/cluster: start, print the addresses, run until Ctrl-C or for a number of seconds."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.process_setup import install_signal_handlers
from tests.cluster.local_cluster import LocalCluster, prepare


def main() -> None:
    """Exit code 0 at the end, however it came."""
    parser = argparse.ArgumentParser("./scripts/cluster", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of all data (default: a new one, deleted at the end)")
    parser.add_argument("--for", dest="seconds", type=float, default=0.0, help="end after so many seconds")
    parser.add_argument("--prepare", action="store_true", help="only fetch and build what it needs")
    given = parser.parse_args()
    if given.prepare:
        prepare()
        return
    stop = install_signal_handlers()
    with tempfile.TemporaryDirectory(prefix="artimon-cluster-") as made:
        began = SYSTEM_CLOCK.monotonic()
        print("cluster: starting three hosts; the first time takes some minutes", flush=True)
        with LocalCluster(given.data or Path(made)) as cluster:
            cluster.produce()
            print(f"cluster: healthy after {SYSTEM_CLOCK.monotonic() - began:.0f} s", flush=True)
            for host in cluster.hosts:
                print(f"  {host.name} {host.address}: {', '.join(cluster.parts_of(host))}", flush=True)
            for name, value in cluster.stack.addresses().items():
                print(f"  {name}={value}", flush=True)
            print("  ./scripts/cluster enter COMMAND... runs a command beside them; Ctrl-C ends all", flush=True)
            resident = sum(cluster.stack.resident().values()) / 2**30
            print(f"  {resident:.1f} GiB resident, containers of YARN not counted", flush=True)
            SYSTEM_CLOCK.wait(stop, given.seconds or 1e9)


if __name__ == "__main__":
    main()
