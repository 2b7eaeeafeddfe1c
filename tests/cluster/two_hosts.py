"""Two hosts and a server on the second: prints as JSON what the first can reach when. Run below scripts/isolated:
python -m tests.cluster.two_hosts FOLDER [wait]"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cluster.cluster_hosts import ClusterHost, ClusterHosts
from tests.waiting import eventually

PORT = 8000
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 8000), 1).close()"


def reaches(one: ClusterHost, address: str) -> bool:
    """Return True if a program on a host can connect to a port of an address or name."""
    command = [*one.place.enter, sys.executable, "-c", CONNECT, address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main(folder: Path, wait: bool) -> None:
    """Look, cut the second host off, heal it, kill it."""
    with ClusterHosts(2, folder) as made:
        one, two = made.hosts
        serve = [*two.place.enter, sys.executable, "-m", "http.server", str(PORT), "--bind", two.address]
        server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: reaches(one, two.address), "the server answers")
        found: dict[str, object] = {"name": reaches(one, two.name)}
        two.cut()
        found["cut"] = reaches(one, two.address)
        two.heal()
        found["healed"] = eventually(lambda: reaches(one, two.address))
        print(json.dumps(found), flush=True)
        if wait:
            server.wait()
        two.kill()
        print(json.dumps({"killed": server.wait(20)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "wait" in sys.argv[2:])
