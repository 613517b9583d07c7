"""How a client reaches Kafka's brokers: topic, TLS and SASL (G11)."""

from dataclasses import dataclass, field
from typing import Any, Final

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class KafkaOptions:
    """`topic` is the platform's `ingress`, with its prefix. `tls`: the brokers' certificates are verified by the
    authorities in the PEM file `ca_file`, or by those of the system, and must name the broker that was dialled.
    `certificate_file` and `key_file`: the client's own, PEM files; `key_password` if the key is encrypted. With
    `sasl_mechanism`: `username` and `password`. The passwords are not shown. Raises ValueError."""

    topic: str = "ingress"
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.topic:
            raise ValueError("KafkaOptions.topic must not be empty")
        if not self.tls and (self.ca_file or self.certificate_file or self.key_file or self.key_password):
            raise ValueError("KafkaOptions has certificates, but tls is off: give tls=True")
        if bool(self.certificate_file) is not bool(self.key_file):
            raise ValueError("KafkaOptions needs both certificate_file and key_file, or neither")
        if self.sasl_mechanism is not None and self.sasl_mechanism not in SASL_MECHANISMS:
            allowed = ", ".join(SASL_MECHANISMS)
            raise ValueError(f"KafkaOptions.sasl_mechanism must be one of {allowed}, not {self.sasl_mechanism!r}")
        has_credentials = self.username is not None and self.password is not None
        has_any = self.username is not None or self.password is not None
        if has_any and (self.sasl_mechanism is None or not has_credentials):
            raise ValueError("KafkaOptions needs sasl_mechanism, username and password together")
        if self.sasl_mechanism is not None and not has_credentials:
            raise ValueError(f"KafkaOptions.sasl_mechanism {self.sasl_mechanism} needs username and password")
        if self.sasl_mechanism == "PLAIN" and not self.tls:
            raise ValueError("KafkaOptions: PLAIN shows the password to whoever is in between: use tls=True, or SCRAM")

    def client(self) -> dict[str, Any]:
        """kafka-python's names for them."""
        protocol = f"{'SASL_' if self.sasl_mechanism else ''}{'SSL' if self.tls else 'PLAINTEXT'}"
        found: dict[str, Any] = {"security_protocol": protocol}
        if self.tls:
            found |= {
                "ssl_check_hostname": True,
                "ssl_cafile": self.ca_file,
                "ssl_certfile": self.certificate_file,
                "ssl_keyfile": self.key_file,
                "ssl_password": self.key_password,
            }
        if self.sasl_mechanism:
            found |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return found
