"""Receivers by apprise: Slack, Teams, Telegram, PagerDuty, Opsgenie and the other services of that library.

An address is a URL of apprise. `{file:PATH}` and `{env:NAME}` in it stand for a secret, which is read for each message
and neither stored nor shown.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import quote

from pydantic import create_model, model_validator

from alerts.receivers.mail import as_text, subject
from alerts.receivers.receiver_kind import (
    Integration,
    IntegrationSection,
    LetterDeferredError,
    LetterRefusedError,
    ReceiverKind,
)
from alerts.state.alert import AlertChange
from alerts.state.notification import Message, target_of
from artimon.runtime.config_model import Text, fault, parsed, raise_faults
from artimon.runtime.settings import secret_variable

TIMEOUT_S = 30.0
"""Deadline of a message; a service may need several requests."""
MAX_HANGING = 8
"""Messages past their deadline that still occupy a thread; further ones wait."""
MAX_SECRET_BYTES = 4_096
MAX_URL = 2_000
_SECRET = re.compile(r"\{(file|env):([^{}]+)\}")
_SECRET_NOUNS = {"file": "file", "env": "variable of the environment"}
_SETTING = re.compile(r"<(\w+)>")


def expand_secrets(address: str) -> str:
    """Return the address with its secrets. One that is the whole address is taken as it is, others are quoted. Raises
    LetterDeferredError."""
    whole = _SECRET.fullmatch(address)
    if whole:
        return _secret(whole)
    return _SECRET.sub(lambda found: quote(_secret(found), safe=""), address)


def _secret(found: re.Match[str]) -> str:
    kind, name = found.groups()
    try:
        if kind == "env":
            text = secret_variable(name) or ""
        else:
            with Path(name).open("rb") as file:
                text = file.read(MAX_SECRET_BYTES).decode()
    except (OSError, ValueError) as error:
        raise LetterDeferredError(f"{name}: {error}") from None
    if not text.strip():
        raise LetterDeferredError(f"the {_SECRET_NOUNS[kind]} {name} is empty")
    return text.strip()


def shown_address(address: str) -> str:
    """Return the service of an address, without what may be secret."""
    if _SECRET.fullmatch(address):
        return address
    return f"{address.partition('://')[0][:40]}://…"


def is_service(address: str) -> bool:
    """True for an address of a service that apprise knows. One with secrets is checked when they are read."""
    if len(address) > MAX_URL or not address.isprintable():
        return False
    if _SECRET.search(address):
        return "://" in address or _SECRET.fullmatch(address) is not None
    return _library().Apprise.instantiate(address, suppress_exceptions=True) is not None


def _library() -> Any:
    """Import apprise, which takes long, where a receiver needs it."""
    import apprise

    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its messages may hold addresses
    return apprise


class AppriseDelivery:
    """Sends messages in threads of their own, because apprise has no deadline for a whole message."""

    _hanging: set[threading.Thread] = set()  # noqa: RUF012 - shared by all deliveries of the process

    def __init__(self, page: str, timeout_s: float = TIMEOUT_S) -> None:
        self._page, self._timeout_s = page, timeout_s

    def send(self, message: Message, address: str, now_ms: int) -> None:
        """Return once the service has accepted the message; else raise LetterDeferredError or LetterRefusedError.
        Apprise does not tell why a service refused, so every failure is tried again."""
        del now_ms
        library = _library()
        about = shown_address(address)
        service = library.Apprise.instantiate(expand_secrets(address), suppress_exceptions=True)
        if service is None:
            raise LetterRefusedError(f"{about}: apprise does not accept this address")
        firing = message.status is AlertChange.FIRING
        kind = library.NotifyType.FAILURE if firing else library.NotifyType.SUCCESS
        title, body = subject(message), as_text(message, self._page)
        if not self._within_deadline(lambda: service.notify(body=body, title=title, notify_type=kind), about):
            raise LetterDeferredError(f"{about} did not accept the message")

    def _within_deadline(self, notify: Callable[[], Any], about: str) -> bool:
        """Return the result of a call. Raises LetterDeferredError if it takes too long or fails."""
        self._hanging.difference_update([one for one in self._hanging if not one.is_alive()])
        if len(self._hanging) >= MAX_HANGING:
            raise LetterDeferredError(f"{about}: {MAX_HANGING} messages hang")
        results: list[Any] = []

        def call() -> None:
            try:
                results.append(notify())
            except Exception as error:
                results.append(error)

        thread = threading.Thread(target=call, name=f"alerts by {about}", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if not results:
            self._hanging.add(thread)
            raise LetterDeferredError(f"{about}: no answer within {self._timeout_s:g} s")
        if isinstance(results[0], Exception):
            raise LetterDeferredError(f"{about}: {type(results[0]).__name__}")  # its text may hold the address
        return bool(results[0])


def _url(text: str) -> str:
    if not is_service(text):
        raise ValueError("apprise knows no service with this address: see https://appriseit.com/services/")
    return text


class AppriseSection(IntegrationSection):
    """Address of a service: given, or in a file or a variable of the environment."""

    url: Annotated[str | None, parsed(_url, blank=False)] = None
    url_file: str | None = None
    url_env: str | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if sum(one is not None for one in (self.url, self.url_file, self.url_env)) != 1:
            raise_faults([fault("give one of url, url_file and url_env")])
        return self

    def build(self) -> list[Integration]:
        given = f"{{file:{self.url_file}}}" if self.url_file else f"{{env:{self.url_env}}}" if self.url_env else ""
        return [Integration(target_of(AppriseReceiver.name, self.url or given), self.send_resolved)]


class ServiceSection(IntegrationSection):
    """Settings of a service in a file of Alertmanager; each secret NAME may be given as `NAME_file`."""

    form: ClassVar[str]
    """Address with the names of the settings in angle brackets."""

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        for name in self._settings():
            if not getattr(self, name, None) and not getattr(self, f"{name}_file", None):
                raise_faults([fault(f"{name} is missing")])
        if not is_service(self._address()):
            raise_faults([fault("apprise does not accept these settings")])
        return self

    @classmethod
    def _settings(cls) -> list[str]:
        return _SETTING.findall(cls.form)

    def _address(self) -> str:
        whole = len(self._settings()) == 1 and self.form == f"<{self._settings()[0]}>"

        def value(found: re.Match[str]) -> str:
            path = getattr(self, f"{found[1]}_file", None)
            text = str(getattr(self, found[1], None))
            return f"{{file:{path}}}" if path else text if whole else quote(text, safe="")

        return _SETTING.sub(value, self.form)

    def build(self) -> list[Integration]:
        return [Integration(target_of(AppriseReceiver.name, self._address()), self.send_resolved)]


def _service(form: str, send_resolved: bool = True) -> type[ServiceSection]:
    """Return the section of a service with this address."""
    settings = [name for found in _SETTING.findall(form) for name in (found, f"{found}_file")]
    fields: dict[str, Any] = dict.fromkeys(settings, (Text | None, None))
    made = create_model("ServiceSection", __base__=ServiceSection, send_resolved=(bool, send_resolved), **fields)
    made.form = form
    return made


class AppriseReceiver(ReceiverKind[None]):
    """Receiver kind for the services of apprise."""

    name = "apprise"
    noun = "URL of apprise"
    example = "slack://tokenA/tokenB/tokenC"
    summary = "title and text by [apprise](https://appriseit.com/services/); see below"
    sections: ClassVar[Mapping[str, type[IntegrationSection]]] = {
        "apprise_configs": AppriseSection,
        "slack_configs": _service("<api_url>", send_resolved=False),
        "discord_configs": _service("<webhook_url>"),
        "msteams_configs": _service("<webhook_url>"),
        "telegram_configs": _service("tgram://<bot_token>/<chat_id>"),
        "pagerduty_configs": _service("pagerduty://<routing_key>@none"),
        "opsgenie_configs": _service("opsgenie://<api_key>"),
        "pushover_configs": _service("pover://<user_key>@<token>"),
    }
    default = None

    def accepts(self, address: str) -> bool:
        """True for an address of a service that apprise knows."""
        return is_service(address)

    def shown(self, address: str) -> str:
        return shown_address(address)

    @contextmanager
    def connect(self, settings: None, page: str) -> Iterator[AppriseDelivery]:
        """Return the delivery; each message has requests of its own, because services differ."""
        del settings
        yield AppriseDelivery(page)


SERVICES = {key: form for key, form in AppriseReceiver.sections.items() if issubclass(form, ServiceSection)}
"""Keys of services in files of Alertmanager. Settings that a form does not have are those of the text of messages."""
RECEIVER = AppriseReceiver()
