"""A part of the real ZooKeeper for each test."""

from tests.sources.conftest import tree

__all__ = ["tree"]
