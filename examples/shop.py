"""A small web shop, instrumented in three lines (marked with # 1, # 2, # 3).

    eval "$(artimon env)"          # where ZooKeeper is
    python examples/shop.py        # http://127.0.0.1:8790, stop with Ctrl-C
    python examples/shop_load.py   # visitors

Then ask: artimon query "fetch('shop.requests').rate('1m').sum(by=['route', 'status'])"
"""

from __future__ import annotations

import argparse
import html
import random
import re
import secrets
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

import bookkeeper  # 1

GOODS = ("lamp", "chair", "clock", "kettle", "mirror", "basket", "carpet", "candle", "vase", "stool", "shelf", "bowl")
STOCK = 200
CARTS = 10_000
FORM_BYTES = 4096
REQUESTS_AT_ONCE = 64
TYPICAL_MS = {"/": 6.0, "/product/<id>": 10.0, "/cart": 8.0, "/checkout": 45.0}
PAYMENT_FAILS = 0.03
PAGE_FAILS = 0.002


@dataclass(frozen=True)
class Request:
    """Context of one request of the shop."""

    method: str
    path: str
    visitor: str
    form: dict[str, str]


Answer = tuple[int, str]
"""Status and the text of the page."""


class Shop:
    """Goods, stock and carts in memory; `_lock` guards stock and carts. `latency` scales how long pages take."""

    def __init__(self, seed: int | None = None, latency: float = 1.0, failures: float = 1.0) -> None:
        self._random, self._latency, self._failures = random.Random(seed), latency, failures
        self._lock = threading.Lock()
        self._stock = [STOCK] * len(GOODS)
        self._carts: OrderedDict[str, list[int]] = OrderedDict()
        self._routes: list[tuple[re.Pattern[str], str, dict[str, Callable[[Request, str], Answer]]]] = [
            (re.compile(r"/()"), "/", {"GET": self._front}),
            (re.compile(r"/product/([^/]+)"), "/product/<id>", {"GET": self._product}),
            (re.compile(r"/cart()"), "/cart", {"GET": self._cart, "POST": self._add}),
            (re.compile(r"/checkout()"), "/checkout", {"POST": self._checkout}),
            (re.compile(r"/health()"), "/health", {"GET": lambda _request, _rest: (200, "good")}),
        ]

    def answer(self, request: Request) -> tuple[str, Answer]:
        """The route (a template, so that there are few) and what it answers."""
        for pattern, route, methods in self._routes:
            match = pattern.fullmatch(request.path)
            if match:
                self._work(route)
                if request.method not in methods:
                    return route, (405, "not that way")
                return route, methods[request.method](request, match[1])
        return "unknown", (404, "no such page")

    def _work(self, route: str) -> None:
        """Take as long as a database and a template would; now and then much longer."""
        typical = TYPICAL_MS.get(route, 0.0) * self._latency
        if typical:
            slow = 8.0 if self._random.random() < 0.01 else 1.0
            time.sleep(min(2.0, typical * slow * self._random.lognormvariate(0, 0.4) / 1000))

    def _fails(self, share: float) -> bool:
        return self._random.random() < share * self._failures

    def _front(self, _request: Request, _rest: str) -> Answer:
        if self._fails(PAGE_FAILS):
            return 500, "the database is busy"
        links = "".join(f'<li><a href="/product/{i}">{html.escape(name)}</a></li>' for i, name in enumerate(GOODS))
        return 200, f"<h1>Shop</h1><ul>{links}</ul>"

    def _product(self, _request: Request, rest: str) -> Answer:
        product = _product_number(rest)
        if product is None:
            return 404, "no such product"
        with self._lock:
            left = self._stock[product]
        button = f'<form method="post" action="/cart"><button name="product" value="{product}">Take</button></form>'
        return 200, f"<h1>{html.escape(GOODS[product])}</h1><p>{left} left</p>{button}"

    def _cart(self, request: Request, _rest: str) -> Answer:
        with self._lock:
            cart = list(self._carts.get(request.visitor, ()))
        return 200, "<h1>Cart</h1>" + "".join(f"<p>{html.escape(GOODS[product])}</p>" for product in cart)

    def _add(self, request: Request, _rest: str) -> Answer:
        product = _product_number(request.form.get("product", ""))
        if product is None:
            return 400, "no such product"
        with self._lock:
            cart = self._carts.setdefault(request.visitor, [])
            if len(cart) >= 20:
                return 409, "the cart is full"
            cart.append(product)
            self._carts.move_to_end(request.visitor)
            if len(self._carts) > CARTS:
                self._carts.popitem(last=False)
        return 200, "taken"

    def _checkout(self, request: Request, _rest: str) -> Answer:
        if self._fails(PAYMENT_FAILS):
            return 502, "the bank does not answer"
        with self._lock:
            cart = self._carts.pop(request.visitor, [])
            if not cart:
                return 409, "the cart is empty"
            sold_out = [product for product in cart if self._stock[product] == 0]
            for product in cart:
                self._stock[product] = self._stock[product] - 1 if self._stock[product] else STOCK  # and more arrives
        return (409, "sold out") if sold_out else (200, f"thank you for {len(cart)} things")


def _product_number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,4}", text) and int(text) < len(GOODS) else None


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Shop", ""
    timeout = 10.0  # seconds of silence, after which the connection ends
    server: ShopServer

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        began = time.perf_counter()
        request = self._request()
        route, (status, page) = self.server.shop.answer(request) if request else ("unknown", (413, "too much"))
        bookkeeper.add_to_integer_var("shop.requests", {"route": route, "status": str(status)}, 1)  # 2
        bookkeeper.add_to_double_var("shop.seconds", {"route": route}, time.perf_counter() - began)  # 3
        body = page.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if request is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Set-Cookie", f"visitor={request.visitor}; Path=/; HttpOnly; SameSite=Lax")
        self.end_headers()
        self.wfile.write(body)

    def _request(self) -> Request | None:
        """None if the form is too large or has no length that can be read."""
        length = self.headers.get("Content-Length", "0")
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > FORM_BYTES or "Transfer-Encoding" in self.headers:
            return None
        fields = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"), max_num_fields=20)
        form = {name: values[0] for name, values in fields.items()}
        return Request(self.command, urlsplit(self.path).path, self._visitor(), form)

    def _visitor(self) -> str:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get("visitor")
        except CookieError:
            cookie = None
        known = cookie is not None and re.fullmatch("[0-9a-f]{16}", cookie.value)
        return cookie.value if cookie and known else secrets.token_hex(8)

    def log_message(self, format: str, *args: Any) -> None:
        """A shop that counts needs no line for each request."""


class ShopServer(ThreadingHTTPServer):
    """A thread for each connection, and not too many of them."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], shop: Shop) -> None:
        super().__init__(address, Handler)
        self.shop = shop
        self._places = threading.BoundedSemaphore(REQUESTS_AT_ONCE)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(timeout=1.0):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Visitors who leave in the middle are no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)  # a normal end: bookkeeper says good-bye and serves a last poll


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A small web shop that counts its requests.")
    parser.add_argument("--port", type=int, default=8790)
    parser.add_argument("--seed", type=int, help="the same failures and delays each time")
    parser.add_argument("--latency", type=float, default=1.0, help="1 = realistic, 0 = as fast as possible")
    parser.add_argument("--failures", type=float, default=1.0, help="1 = realistic, 0 = never")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    with ShopServer(("127.0.0.1", chosen.port), Shop(chosen.seed, chosen.latency, chosen.failures)) as server:
        print(f"Shop: http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
