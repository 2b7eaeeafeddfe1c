"""The parsers of prometheus_client, which are the reference, with types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import prometheus_client.openmetrics.parser
import prometheus_client.parser

Read = Callable[[str], Iterable[Any]]
read_openmetrics: Read = prometheus_client.openmetrics.parser.text_string_to_metric_families
read_plain: Read = prometheus_client.parser.text_string_to_metric_families
