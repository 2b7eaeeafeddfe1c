"""Security options of Kafka clients, for kafka-python and for the Java client.

artimon/runtime/settings.py reads the variables ARTIMON_KAFKA_*; no other module passes security options to a client.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from artimon.runtime.settings import KafkaSecurity, kafka_security, read_secret

_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
RECONNECT_MAX_MS = 1_000
"""Longest pause between two attempts to connect; kafka-python's own 30 s delay the recovery after an outage."""
REDACTED = "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key"
"""Pattern of option names whose values Spark must never print."""


def describe_access(options: dict[str, Any] | None = None) -> str:
    """Return the text of messages about a cluster that does not answer: kafka-python reports refused credentials like
    a closed port."""
    options = client_options() if options is None else options
    protocol, mechanism = options.get("security_protocol", "PLAINTEXT"), options.get("sasl_mechanism", "")
    who = f" with {mechanism} as {options.get('sasl_plain_username', 'itself')}" if mechanism else ""
    return f"does not answer over {protocol}{who} (address, ARTIMON_KAFKA_SECURITY_PROTOCOL, password?)"


def client_options(access: KafkaSecurity | None = None) -> dict[str, Any]:
    """Return keyword arguments for any client of kafka-python; empty for PLAINTEXT. Raises SettingsError."""
    access = access or kafka_security()
    options: dict[str, Any] = {}
    if access.protocol != "PLAINTEXT":
        options["security_protocol"] = access.protocol
    if access.is_tls:
        files = {"ssl_cafile": access.ca, "ssl_certfile": access.certificate, "ssl_keyfile": access.key}
        options |= {name: file for name, file in files.items() if file}
    if access.is_sasl:
        options |= {"sasl_mechanism": access.mechanism, **_sasl(access)}
    return options


def open_client(kind: Callable[..., Any], access: dict[str, Any] | None = None, **options: Any) -> Any:
    """Open a client of kafka-python of class `kind` with `options`; `access` replaces the security options of this
    process. Raises what the constructor raises.

    A constructor that fails leaves the network thread and the sockets of its client behind. They are closed here,
    because callers retry for as long as Kafka is down."""
    from kafka.net.compat import KafkaNetClient

    networks: list[Any] = []

    def network(**settings: Any) -> Any:
        networks.append(KafkaNetClient(**settings))
        return networks[-1]

    try:
        options = {"reconnect_backoff_max_ms": RECONNECT_MAX_MS, **options}
        return kind(kafka_client=network, **options, **(client_options() if access is None else access))
    except BaseException:
        for one in networks:
            one.close()
        raise


def _sasl(access: KafkaSecurity) -> dict[str, Any]:
    if access.mechanism == "GSSAPI":  # the ticket cache, or KRB5_CLIENT_KTNAME
        return {"sasl_kerberos_service_name": access.service}
    if access.mechanism == "OAUTHBEARER":
        return {"sasl_oauth_token_provider": _file_tokens(access.token_file)}
    return {"sasl_plain_username": access.username, "sasl_plain_password": access.password}


def _file_tokens(file: str) -> Any:
    """Return a token provider that reads the file at each login and so uses renewed tokens."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class FileTokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return read_secret("ARTIMON_KAFKA_SASL_TOKEN_FILE", file)

    return FileTokens()


def java_options(access: KafkaSecurity | None = None) -> dict[str, str]:
    """Return properties of the Java client. They contain certificates and keys as PEM text, so that executors need no
    files; Spark redacts them (REDACTED). Raises SettingsError, OSError."""
    access = access or kafka_security()
    options: dict[str, str] = {}
    if access.protocol != "PLAINTEXT":
        options["security.protocol"] = access.protocol
    if access.is_tls and access.ca:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Path(access.ca).read_text()}
    if access.is_tls and access.certificate:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(access.certificate).read_text(),
            "ssl.keystore.key": Path(access.key).read_text(),
        }
    if access.is_sasl:
        options |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": _jaas(access)}
    if access.mechanism == "GSSAPI":
        options["sasl.kerberos.service.name"] = access.service
    if access.mechanism == "OAUTHBEARER":
        options["sasl.login.callback.handler.class"] = _OAUTH_HANDLER
        options["sasl.oauthbearer.token.endpoint.url"] = Path(access.token_file).absolute().as_uri()
    return options


def _jaas(access: KafkaSecurity) -> str:
    given: dict[str, str] = {}
    if access.mechanism == "GSSAPI":
        given = {"useTicketCache": "true"}
        if access.keytab:
            given = {"useKeyTab": "true", "storeKey": "true", "keyTab": access.keytab, "principal": access.username}
    elif access.mechanism != "OAUTHBEARER":
        given = {"username": access.username, "password": access.password}
    words = "".join(f" {name}={_quoted(value)}" for name, value in given.items())
    return f"{_JAAS[access.mechanism]} required{words};"


def _quoted(value: str) -> str:
    """
    >>> _quoted('a"b')
    '"a\\\\"b"'
    """
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
