"""Program that compares discovery by DNS with a running Prometheus; it prints "equal" and the number of targets.

Both read /etc/resolv.conf and ask port 53, so it runs with a network and mounts of its own (scripts/isolated)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from dnslib import AAAA, CNAME, MX, QTYPE, RCODE, RR, SRV, A

from sources.scrape.discovery.discovered_targets import JobDiscovery
from tests.sources.discovery.name_server import Zone, name_server
from tests.sources.discovery.test_against_prometheus import Sets, equal, their_sets, with_ours
from tests.sources.prometheus.exporters import get, prometheus
from tests.waiting import until

TIMING = {"scrape_interval": "1h30m", "scrape_timeout": "10s"}
RELABEL = [
    {"source_labels": ["__meta_dns_name"], "target_label": "service"},
    {"source_labels": ["__meta_dns_srv_record_target"], "regex": r"(.+?)\..*", "target_label": "instance"},
    {"source_labels": ["__meta_dns_srv_record_port"], "regex": "90..", "action": "keep"},
]


def records() -> dict[tuple[str, str], Any]:
    """Return all that is known at the begin."""
    return {
        ("_web._tcp.shop.test.", "SRV"): [SRV(1, 1, 9100 + n % 3, f"n{n}.shop.test") for n in range(40)],
        ("_db._tcp.shop.test.", "SRV"): [SRV(1, 1, 9042, "db1.shop.test"), SRV(2, 1, 80, "db2.shop.test")],
        ("web.shop.test.", "A"): [A("10.0.0.1"), A("10.0.0.2")],
        ("web.shop.test.", "AAAA"): [AAAA("fd00::1")],
        ("shop.test.", "MX"): [MX("mail.shop.test", 10), MX("mail2.shop.test", 20)],
        ("only6.shop.test.", "A"): [],
        ("only6.other.test.", "A"): [A("10.0.0.6")],
        ("ill.shop.test.", "A"): RCODE.SERVFAIL,
        ("ill.other.test.", "A"): [A("10.0.0.7")],
        ("rooted.", "A"): [A("10.0.0.8")],
        ("rooted.shop.test.", "A"): [A("10.0.0.9")],
        ("two.labels.", "A"): [A("10.0.0.10")],
        ("two.labels.shop.test.", "A"): [A("10.0.0.11")],
        ("alias.shop.test.", "A"): [
            RR("alias.shop.test", QTYPE.CNAME, rdata=CNAME("web.shop.test")),
            RR("web.shop.test", QTYPE.A, rdata=A("10.0.0.1")),
        ],
    }


def jobs() -> list[dict[str, Any]]:
    """Return jobs of all types, of names in full, by search domains, absent and failing."""

    def job(name: str, *names: str, **more: Any) -> dict[str, Any]:
        rules = {"relabel_configs": more.pop("rules")} if "rules" in more else {}
        found = {"names": list(names), "refresh_interval": "1s", **more}
        return {**TIMING, "job_name": name, "dns_sd_configs": [found], **rules}

    return [
        job("srv", "_web._tcp.shop.test", "_db._tcp.shop.test", "_none._tcp.shop.test"),
        job("rules", "_web._tcp.shop.test", "_db._tcp.shop.test", rules=RELABEL),
        job("a", "web.shop.test", type="A", port=9100),
        job("rooted", "web.shop.test.", "web.shop.test.other.", type="A", port=9100),
        job("alias", "alias", type="A", port=80),
        job("aaaa", "web.shop.test", type="AAAA", port=9100),
        job("mx", "shop.test", type="MX", port=25),
        job("search", "web", "only6", "ill", "rooted", "rooted.", "two.labels", type="A", port=80),
    ]


def main(folder: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    resolving = folder / "resolv.conf"
    resolving.write_text("nameserver 127.0.0.1\nsearch shop.test other.test\n")
    subprocess.run(["mount", "--bind", resolving, os.path.realpath("/etc/resolv.conf")], check=True)
    zone = Zone()
    zone.records = records()
    with name_server(zone, 53), prometheus(folder, {"scrape_configs": jobs()}) as theirs:

        def told() -> dict[str, Sets]:
            return their_sets(json.loads(get(f"http://{theirs.address}/api/v1/targets")[0])["data"])

        async def test(ours: list[JobDiscovery]) -> None:
            await until(lambda: {"srv", "a", "aaaa", "mx", "search"} <= told().keys(), "targets of Prometheus")
            await equal(ours, told)
            first = told()
            zone.records["_db._tcp.shop.test.", "SRV"] = RCODE.SERVFAIL  # keeps its targets
            zone.records["web.shop.test.", "A"] = [A("10.0.0.2"), A("10.0.0.3")]
            zone.records["web.shop.test.", "AAAA"] = RCODE.NXDOMAIN
            del zone.records["ill.other.test.", "A"]
            await until(lambda: told()["a"] != first["a"] and "aaaa" not in told(), "changes in Prometheus")
            await equal(ours, told)
            print("equal", sum(len(active) for active, _ in first.values()))

        asyncio.run(with_ours(folder / "prometheus.yml", test))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
