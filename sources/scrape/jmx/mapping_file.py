"""Reads mapping rules from YAML; every error says file, line and column."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from artimon.model.labels import validate_labels, validate_name
from artimon.model.values import Kind, ValueType
from sources.base.errors import JmxRulesError
from sources.base.yaml_nodes import NodeReader, compose, read_text
from sources.scrape.jmx.mapping_rules import BeanRule, VariableRule
from sources.scrape.jmx.name_patterns import PatternError, Template, parse_bean_pattern, parse_pattern, parse_template

MAX_RULES = 10_000
_TYPES = {"integer": ValueType.INTEGER, "double": ValueType.DOUBLE, "boolean": ValueType.BOOLEAN}
_KINDS = {"counter": Kind.COUNTER, "gauge": Kind.GAUGE}
_UNITS = ("bytes", "ms")
"""Last words of a name that are its unit."""
_SCALARS = ("type", "kind", "unit", "help", "multiply", "divide")
_KEYS = ("name", "attribute", "attributes", "labels", "missing", "values", "except", *_SCALARS)
_EACH = "each"


RULE_SETS = ("hbase", "hdfs", "jvm", "kafka", "spark", "zookeeper")
"""Those that come with the package, by the names of their files."""


@cache
def rule_set(name: str) -> tuple[BeanRule, ...]:
    """One of RULE_SETS."""
    return _read(resources.files("sources.scrape.jmx") / "rule_sets" / f"{name}.yaml", f"{name}.yaml")


def read_rules(path: Path) -> tuple[BeanRule, ...]:
    """The rules of one file. Raises JmxRulesError."""
    return _read(path, str(path))


def _read(file: Path | Traversable, shown: str) -> tuple[BeanRule, ...]:
    return parse_rules(read_text(file, shown, JmxRulesError), shown)


def parse_rules(text: str, shown: str) -> tuple[BeanRule, ...]:
    """The rules of a file's text; `shown` is what errors call it. Raises JmxRulesError."""
    root = compose(text, shown, JmxRulesError)
    if root is None:
        raise JmxRulesError(shown, 1, 1, "empty: want `beans:` and a list")
    return _Reader(shown).file(root)


class _Reader(NodeReader):
    """Walks the nodes of one file of mapping rules."""

    def __init__(self, shown: str) -> None:
        super().__init__(shown, JmxRulesError)
        self._rules = 0

    def file(self, root: yaml.Node) -> tuple[BeanRule, ...]:
        self._refuse_aliases(root)
        keys = self._mapping(root, ("beans",), required=("beans",))
        return tuple(self._bean(node) for node in self._list(keys["beans"]))

    def _bean(self, node: yaml.Node) -> BeanRule:
        keys = self._mapping(node, ("bean", "labels", "variables"), required=("bean", "variables"))
        pattern = self._checked(keys["bean"], parse_bean_pattern)
        labels = self._labels(keys.get("labels"))
        variables = tuple(
            rule for one in self._list(keys["variables"]) for rule in self._variables(one, pattern.places, labels)
        )
        uses = {use for rule in variables for template in rule.labels.values() for use in template.uses}
        return BeanRule(pattern, variables, frozenset(use for use in uses if use.startswith("tag.")))

    def _variables(
        self, node: yaml.Node, places: frozenset[str], common: dict[str, Template]
    ) -> Iterator[VariableRule]:
        """One rule, or one for each of `attributes`, whose right side is `<each>` in the labels."""
        keys = self._mapping(node, _KEYS, required=("name",))
        if ("attribute" in keys) == ("attributes" in keys):
            self._fail(node, "want `attribute:` or `attributes:`, one of the two")
        if "attribute" in keys:
            yield self._variable(node, keys, keys["attribute"], "", places, common)
            return
        for attribute, each in self._pairs(keys["attributes"]):
            yield self._variable(node, keys, attribute, self._text(each), places, common)

    def _variable(
        self,
        node: yaml.Node,
        keys: dict[str, yaml.Node],
        attribute: yaml.Node,
        each: str,
        places: frozenset[str],
        common: dict[str, Template],
    ) -> VariableRule:
        self._rules += 1
        if self._rules > MAX_RULES:
            self._fail(node, f"more than {MAX_RULES} variables in one file")
        path = self._checked(attribute, _parse_path)
        labels = {**common, **self._labels(keys.get("labels"))}
        known = places | {place for step in path for place in step.places} | ({_EACH} if each else frozenset())
        for label, template in labels.items():
            lost = {use for use in template.uses if not use.startswith("tag.")} - known
            if lost:
                self._fail(node, f"label {label}: nothing is named <{min(lost)}>")
            if each:
                labels[label] = _filled(template, each)
        name = self._checked(keys["name"], validate_name)
        last = name.rpartition(".")[2]
        return VariableRule(
            name,
            labels,
            path,
            type=self._choice(keys.get("type"), _TYPES, ValueType.INTEGER),
            kind=self._choice(keys.get("kind"), _KINDS, Kind.GAUGE),
            unit=self._text(keys["unit"]) if "unit" in keys else last if last in _UNITS else "",
            help=self._text(keys["help"]) if "help" in keys else "",
            multiply=self._positive(keys.get("multiply")),
            divide=self._positive(keys.get("divide")),
            missing=tuple(self._checked(n, float) for n in self._list(keys.get("missing"))),
            values=self._values(keys.get("values")),
            except_=tuple(self._checked(n, parse_pattern) for n in self._list(keys.get("except"))),
        )

    def _values(self, node: yaml.Node | None) -> dict[str, int]:
        pairs = self._pairs(node) if node is not None else []
        return {self._text(key): self._checked(value, int) for key, value in pairs}

    def _labels(self, node: yaml.Node | None) -> dict[str, Template]:
        labels: dict[str, Template] = {}
        for key, value in self._pairs(node) if node is not None else []:
            name = self._checked(key, lambda text: _label(text))
            labels[name] = self._checked(value, parse_template)
        return labels


def _label(text: str) -> str:
    validate_labels({text: ""})
    return text


def _parse_path(text: str) -> Any:
    """Steps between dots; `tag.Name` is one attribute."""
    steps = [text] if text.startswith("tag.") else text.split(".")
    if not all(steps):
        raise PatternError(f"{text!r}: want Attribute or Attribute.part.part")
    return tuple(parse_pattern(step) for step in steps)


def _filled(template: Template, each: str) -> Template:
    """`<each>` replaced by its text."""
    return Template(tuple((b + each, "", "") if n == _EACH else (b, n, f) for b, n, f in template.pieces))
