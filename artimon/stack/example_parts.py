"""The example shop and its load generator as parts of the stack: group `examples`, for a clone of the repository."""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from types import MappingProxyType

from artimon.stack.child_process import ProcessCommand
from artimon.stack.stack_errors import ExampleMissingError
from artimon.stack.stack_part import EXAMPLES, HOST, StackContext, StackPart
from artimon.stack.zookeeper_part import zookeeper_address

FOLDER = Path(__file__).resolve().parents[2] / "examples"
REQUEST_TIMEOUT_S = 3.0


class ExamplePart(StackPart):
    """A program of the folder `examples/`. Raises ExampleMissingError if it does not exist."""

    file = ""
    layer = EXAMPLES
    memory_mb = 256
    stop_s = 15.0

    def __init__(self) -> None:
        self.program = FOLDER / self.file
        if not self.program.is_file():
            raise ExampleMissingError(self.program)

    def arguments(self, context: StackContext) -> list[str]:
        """Return the arguments of the program."""
        raise NotImplementedError

    def command(self, context: StackContext) -> ProcessCommand:
        environment = {
            "PYTHONUNBUFFERED": "1",
            "ARTIMON_ZOOKEEPER": zookeeper_address(context) or context.settings.zookeeper,
            "ARTIMON_CONTEXT": self.name,
        }
        return ProcessCommand([sys.executable, "-P", str(self.program), *self.arguments(context)], environment)


class ShopPart(ExamplePart):
    """The instrumented web shop; its context is `shop`."""

    name = "shop"
    file = "shop.py"
    starts_after = ("zookeeper",)
    ports = MappingProxyType({"shop.http": 8790})
    hung_s = 30.0

    def arguments(self, context: StackContext) -> list[str]:
        return ["--port", str(context.port("shop.http"))]

    def check(self, context: StackContext) -> str:
        connection = http.client.HTTPConnection(HOST, context.port("shop.http"), timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            status = connection.getresponse().status
        except http.client.HTTPException as problem:
            return f"does not speak HTTP: {problem!r}"
        finally:
            connection.close()
        return "" if status == 200 else f"/health answers {status}"

    def addresses(self, context: StackContext) -> dict[str, str]:
        return {"ARTIMON_SHOP": f"http://{context.address('shop.http')}"}


class ShopLoadPart(ExamplePart):
    """Load generator of the shop, about 20 requests a second. Counts failures while the shop is down."""

    name = "shop-load"
    file = "shop_load.py"
    starts_after = ("shop",)

    def arguments(self, context: StackContext) -> list[str]:
        place = context.server("shop.http") or f"{HOST}:8790"
        return ["--url", f"http://{place}", "--rate", context.options.get("shop_rate", "20")]

    def check(self, context: StackContext) -> str:  # noqa: ARG002
        return ""  # it serves nothing; running is healthy
