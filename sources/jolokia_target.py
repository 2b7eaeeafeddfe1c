"""A bean server with a Jolokia agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sources.access import Access
from sources.target import joined


@dataclass(frozen=True, slots=True)
class JolokiaTarget:
    """Where the beans of one process are, and the labels `context` and `instance` of its variables."""

    context: str
    host: str
    port: int
    path: str = "/jolokia"
    scheme: str = "http"
    instance: str = "0"
    rule_sets: tuple[str, ...] = ("jvm", "kafka", "zookeeper", "spark", "hbase", "hdfs")
    access: Access = field(default_factory=Access)
    bulk: bool = True
    """All is asked at once, by POST; else one bean after another, by GET, which some servers allow alone."""

    @property
    def kind(self) -> str:
        return "jolokia"

    @property
    def identity(self) -> list[str]:
        return [self.context, self.instance, self.url]

    @property
    def address(self) -> str:
        return joined(self.host, self.port)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"

    @property
    def labels(self) -> Mapping[str, str]:
        return {"context": self.context, "instance": self.instance}

    def source(self, host: str) -> str:
        """As for any bean server: its series stay when it is asked in another way."""
        return f"jmx/{self.context}/{host}/{self.instance}"

    def __str__(self) -> str:
        return f"{self.context}/{self.instance} at {self.url}"
