"""A small application that counts: run it with ARTIMON_ZOOKEEPER set (`eval "$(artimon env)"`), stop it with Ctrl-C."""

from __future__ import annotations

import random
import threading

import bookkeeper


def main() -> None:
    bookkeeper.configure(context="hello")
    bookkeeper.describe("hello.greetings", help="greetings said", unit="1", kind="counter")
    greetings = bookkeeper.integer("hello.greetings", {"language": "en"})
    pause = threading.Event()
    while not pause.wait(0.1):
        greetings.add(1)
        bookkeeper.add_to_integer_var("hello.greetings", {"language": "fr"}, random.randrange(3))
        bookkeeper.set_double_var("hello.mood", {}, random.random())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
