"""A broker that asks its clients for a certificate authority and a password, and the settings with which they pass."""

from __future__ import annotations

from pathlib import Path

from tests.security.certificates import Authority, openssl

USER, PASSWORD = "artimon", 'se"cr\\et'
STORE_PASSWORD = "changeit"


def broker_options(folder: Path, mechanism: str, protocol: str = "SASL_SSL") -> dict[str, str]:
    """Options of the stack for such a broker; its files go to `folder`."""
    authority = Authority(folder / "ca")
    pair = authority.sign("localhost")
    store = folder / "broker.p12"
    words = ("-inkey", pair.key, "-in", pair.certificate, "-certfile", authority.certificate, "-out", str(store))
    openssl("pkcs12", "-export", *words, "-passout", f"pass:{STORE_PASSWORD}")
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    module, user = "scram.ScramLoginModule", ""
    if mechanism == "PLAIN":
        module, user = "plain.PlainLoginModule", f' user_{USER}="{quoted}"'
    jaas = f"org.apache.kafka.common.security.{module} required{user};"
    lines = {
        "sasl.enabled.mechanisms": mechanism,
        f"listener.name.client.{mechanism.lower()}.sasl.jaas.config": jaas.replace("\\", "\\\\"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    options = {
        "kafka_protocol": protocol,
        "kafka_properties": "\n".join(f"{name}={value}" for name, value in lines.items()),
    }
    if mechanism.startswith("SCRAM"):
        options["kafka_scram"] = f"{mechanism}=[name={USER},password={PASSWORD}]"
    return options


def client_environment(folder: Path, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """Variables of a process that may use that broker."""
    secret = folder / f"password-{len(password)}"
    secret.write_text(f"{password}\n")
    secret.chmod(0o600)
    return {
        "ARTIMON_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "ARTIMON_KAFKA_SASL_MECHANISM": mechanism,
        "ARTIMON_KAFKA_SASL_USERNAME": USER,
        "ARTIMON_KAFKA_SASL_PASSWORD_FILE": str(secret),
        "ARTIMON_KAFKA_TLS_CA": str(folder / "ca" / "ca.pem"),
    }
