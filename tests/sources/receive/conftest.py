"""Certificates of the tests of security, for receivers."""

from __future__ import annotations

from tests.security.conftest import authority, server_pair

__all__ = ["authority", "server_pair"]
