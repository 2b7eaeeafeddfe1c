"""Pydantic models of configuration files: sections, field types made from parsers, and their error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from artimon.runtime.text import did_you_mean

Steps = tuple[str | int, ...]
"""Path of an element: keys of mappings and indices of lists."""
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_FAULT = "configuration"
_WORDS = {
    "list_type": "write a list",
    "tuple_type": "write a list",
    "dict_type": "write a mapping",
    "model_type": "write a mapping",
    "string_type": "write a text",
    "string_unicode": "write a text in UTF-8",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "float_type": "write a number",
    "float_parsing": "write a number",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "literal_error": "write {expected}",
    "enum": "write {expected}",
}
_LENGTHS = {
    "too_short": "is empty: write at least {min_length}",
    "too_long": "more than {max_length} entries: split it",
}


def fault(
    text: str, *path: str | int, of_key: bool = False, first: Steps | None = None, offset: int | None = None
) -> InitErrorDetails:
    """Return an error at `path` relative to the section that raises it. `first`: element to mention with its line.
    `offset`: character of a scalar."""
    context = {"text": text, "of_key": of_key, "first": first, "offset": offset}
    error = PydanticCustomError(_FAULT, "{text}", context)
    return InitErrorDetails(type=error, loc=path, input=None)


def validation_error(*faults: InitErrorDetails) -> ValidationError:
    """Return an exception with these errors. For validators: pydantic adds the path of the section."""
    return ValidationError.from_exception_data(_FAULT, list(faults))


def raise_faults(faults: Iterable[InitErrorDetails]) -> None:
    """Raise the errors, if there are any."""
    if found := list(faults):
        raise validation_error(*found)


def repeated(names: Iterable[tuple[str, Steps]]) -> Iterator[InitErrorDetails]:
    """Yield an error for each name that an earlier element has. `names` are pairs (name, path)."""
    first: dict[str, Steps] = {}
    for name, path in names:
        if name in first:
            yield fault(f"{name} is defined a second time", *path, first=first[name])
        first.setdefault(name, path)


@contextmanager
def with_path(*path: str | int) -> Iterator[None]:
    """Add the path to the errors of the block."""
    try:
        yield
    except ValidationError as error:
        details = [_detail(one) for one in error.errors(include_url=False)]
        raise validation_error(*(InitErrorDetails({**one, "loc": (*path, *one["loc"])}) for one in details)) from None
    except ValueError as error:
        raise validation_error(fault(str(error), *path)) from None


def collect_faults(*reads: Callable[[], Any]) -> list[Any]:
    """Return the results of all calls. Raises the errors of all failed calls together."""
    results: list[Any] = []
    faults: list[InitErrorDetails] = []
    for read in reads:
        try:
            results.append(read())
        except ValidationError as error:
            faults += [_detail(one) for one in error.errors(include_url=False)]
        except ValueError as error:
            faults.append(fault(str(error)))
    raise_faults(faults)
    return results


def _detail(error: Any) -> InitErrorDetails:
    """Convert an error to a form that can be raised again."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == _FAULT:
        kind = PydanticCustomError(_FAULT, "{text}", context)
    return InitErrorDetails(type=kind, loc=error["loc"], input=error["input"], ctx=context)


def _own_faults(errors: Sequence[Any]) -> Iterator[Any]:
    """Yield errors without those of lists that are too short only because their elements are wrong."""
    for error in errors:
        steps = error["loc"]
        if error["type"] != "too_short" or not any(
            one["loc"][: len(steps)] == steps and one is not error for one in errors
        ):
            yield error


class Section(BaseModel):
    """Immutable mapping of a configuration file. Unknown keys are errors.

    The `description` of a field is the remedy in errors of a missing or mistyped value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        """Yield errors among the keys that are present. Reported together with all other errors."""
        del data
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, data: Any, handler: ModelWrapValidatorHandler[Any], info: ValidationInfo) -> Any:
        found = list(cls.contradictions(data)) if isinstance(data, Mapping) else []
        try:
            made = handler(data)
        except ValidationError as error:
            found += [cls._reworded(one, info) for one in _own_faults(error.errors(include_url=False))]
        raise_faults(found)
        return made

    @classmethod
    def _reworded(cls, error: Any, info: ValidationInfo) -> InitErrorDetails:
        """Add remedies to errors of this section's own keys."""
        kind, path = error["type"], error["loc"]
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        if kind == "extra_forbidden" and len(path) == 1:
            known = [*fields, *((info.context or {}).get("known_keys", ()))]
            return fault(f"unknown key{did_you_mean(str(path[0]), known)}", *path, of_key=True)
        remedy = fields[path[0]].description if len(path) == 1 and path[0] in fields else None
        if kind == "missing" and remedy:
            return fault(f"missing: {remedy}", *path)
        if remedy and kind in _WORDS:
            return fault(f"{explain(error).text}: {remedy}", *path)
        return _detail(error)


class Buildable(Protocol[T_co]):
    """Section that builds a value of the product."""

    @classmethod
    def model_validate(cls, data: Any, *, context: Any = None) -> Buildable[T_co]: ...

    def build(self) -> T_co: ...


@dataclass(frozen=True, slots=True)
class Conversion:
    """Field type with the result of `convert`. Unlike PlainValidator it needs no schema of the resulting type."""

    convert: Callable[[Any, ValidationInfo], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.with_info_plain_validator_function(self.convert)


def built(section: type[Buildable[Any]]) -> Conversion:
    """Field type with the result of `build` of a section. ValueErrors of `build` are errors of the section."""
    return Conversion(lambda data, info: section.model_validate(data, context=info.context).build())


def parsed(parse: Callable[[str], Any], blank: bool = True) -> Conversion:
    """Field type with the result of `parse` for a text. Its ValueErrors may have a `message` and a `position`.

    `blank`: True if the text may be empty."""
    return Conversion(lambda given, _: parse(text_of(given) if blank else _not_blank(text_of(given))))


def text_of(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"write a text, not {short_repr(given)}; put it in quotes if it holds {{ or [")
    return given


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


Text = Annotated[str, parsed(str, blank=False)]
"""Text that is not blank."""


def choice(values: Mapping[str, T]) -> Conversion:
    """Field type with the value of one of the words."""

    def choose(word: str) -> T:
        if word not in values:
            raise ValueError(f"{word!r:.80}: write {' or '.join(values)}")
        return values[word]

    return parsed(choose)


def checked(check: Callable[[T], object]) -> AfterValidator:
    """Field type with a value that `check` accepts; `check` refuses by a ValueError."""

    def confirm(value: T) -> T:
        check(value)
        return value

    return AfterValidator(confirm)


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """Message of an error of a pydantic model. `offset`: character of a scalar; `of_key`: the key is at fault."""

    text: str
    of_key: bool = False
    offset: int | None = None
    first: Steps | None = None


def explain(error: Any) -> ErrorDetail:
    """Return the message of one entry of `ValidationError.errors()`."""
    kind, context = error["type"], error.get("ctx", {})
    cause = context.get("error")
    if kind == _FAULT:
        return ErrorDetail(context["text"], context.get("of_key", False), context.get("offset"), context.get("first"))
    if isinstance(cause, ValueError):
        return ErrorDetail(getattr(cause, "message", "") or str(cause), offset=getattr(cause, "position", None))
    if kind == "missing":
        return ErrorDetail("is missing")
    if kind == "extra_forbidden":
        return ErrorDetail("unknown key", of_key=True)
    if kind in _WORDS:
        return ErrorDetail(f"{_WORDS[kind].format(**context)}, not {short_repr(error['input'])}")
    if kind in _LENGTHS:
        return ErrorDetail(_LENGTHS[kind].format(**context))
    text = str(error["msg"]).replace("Input should be", "write a value")
    return ErrorDetail(text if isinstance(error["input"], list | dict) else f"{text}, not {short_repr(error['input'])}")


def split_unsupported(
    data: Any, reason: Callable[[tuple[str, ...]], str | None], path: Steps = ()
) -> tuple[Any, list[tuple[Steps, str]]]:
    """Return the data without its unsupported keys, and their paths with the reasons. `reason`: why the last one of
    some keys is not supported, None if it is."""
    left_out: list[tuple[Steps, str]] = []
    if isinstance(data, list):
        parts = [split_unsupported(one, reason, (*path, at)) for at, one in enumerate(data)]
        return [one for one, _ in parts], [note for _, notes in parts for note in notes]
    if not isinstance(data, Mapping):
        return data, []
    kept: dict[Any, Any] = {}
    for key, value in data.items():
        inner = (*path, str(key))
        found = reason(tuple(step for step in inner if isinstance(step, str)))
        if found is not None:
            left_out.append((inner, found))
        else:
            kept[key], notes = split_unsupported(value, reason, inner)
            left_out += notes
    return kept, left_out


def short_repr(given: Any) -> str:
    """Return a value as errors show it."""
    if isinstance(given, Mapping):
        return "a mapping"
    return "a list" if isinstance(given, list | tuple) else f"{given!r:.80}"


def dotted_path(path: Steps) -> str:
    """Return a path as in `flow[0].sink.port`."""
    steps = [step for step in path if step != "[key]"]
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_printable(step)}" for step in steps).lstrip(".")


def _printable(step: str) -> str:
    return step[:80] if step.isprintable() else f"{step!r:.80}"
