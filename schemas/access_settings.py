"""Settings for who may connect and what they may do: `[gateway.tls]`, `[gateway.authentication]`,
`[gateway.authorization]` (R11). `conf/base.toml` documents every key."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.sections import OFF, ListenerPort, Natural, NotEmpty, NotNegative, Positive, Seconds, Section
from schemas.this_machine import is_loopback

Method = Literal["password", "jwt", "certificate", "anonymous"]
Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "HS256",
    "HS384",
    "HS512",
]


class TlsSettings(Section, frozen=True, kw_only=True):
    certificate: str
    key: str
    client_ca: str
    client_certificates: Literal["no", "optional", "required"]
    minimum_version: Literal["1.2", "1.3"]
    mqtts_port: ListenerPort
    wss_port: ListenerPort
    https_port: ListenerPort
    quic_port: ListenerPort
    handshake_timeout_s: Seconds

    @property
    def is_on(self) -> bool:
        """Whether any listener uses TLS."""
        return not {self.mqtts_port, self.wss_port, self.https_port, self.quic_port} <= {OFF}


class PasswordSettings(Section, frozen=True, kw_only=True):
    file: str
    threads: Annotated[int, Meta(ge=1, le=64)]
    waiting: Positive
    cache_s: NotNegative
    cache_entries: Natural


class JwtSettings(Section, frozen=True, kw_only=True):
    keys: str
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)]
    audience: str
    issuer: str
    user_claim: NotEmpty
    leeway_s: NotNegative


class AuthenticationSettings(Section, frozen=True, kw_only=True):
    methods: tuple[Method, ...]
    client_id_is_user: bool
    password: PasswordSettings
    jwt: JwtSettings


class AuthorizationSettings(Section, frozen=True, kw_only=True):
    file: str
    default: Literal["allow", "deny"]


def trusts_this_machine(host: str, authentication: AuthenticationSettings) -> bool:
    """Whether programs on this machine need no credentials, and others cannot reach the gateway. Then a page in a
    browser on this machine could do what they may, so foreign pages must be told by what browsers say of them."""
    return is_loopback(host) and (not authentication.methods or "anonymous" in authentication.methods)


def check_access(host: str, tls: TlsSettings, authentication: AuthenticationSettings) -> None:
    """The rules between keys. Raises SettingsError."""
    methods = authentication.methods
    if not methods and not is_loopback(host):
        raise SettingsError(
            f"gateway.host = {host!r} can be reached from other machines, but gateway.authentication.methods is empty, "
            f"so everybody could do everything: list the methods by which clients authenticate (password, jwt, "
            'certificate; "anonymous" accepts clients without credentials), or set gateway.host = "127.0.0.1"'
        )
    if len(set(methods)) < len(methods):
        raise SettingsError(f"gateway.authentication.methods = {list(methods)} lists a method twice: remove one")
    if tls.is_on and not (tls.certificate and tls.key):
        raise SettingsError(
            "gateway.tls.mqtts_port, wss_port, https_port and quic_port need a certificate: set "
            f'gateway.tls.certificate and gateway.tls.key, or all four ports to "{OFF}"'
        )
    asks = tls.client_certificates != "no"
    if asks and not tls.client_ca:
        raise SettingsError(
            f'gateway.tls.client_certificates = "{tls.client_certificates}" needs gateway.tls.client_ca: set it to '
            "a PEM file of the authorities whose certificates are accepted"
        )
    if "certificate" in methods and not (asks and tls.is_on):
        raise SettingsError(
            'gateway.authentication.methods has "certificate", which needs a TLS listener and '
            'gateway.tls.client_certificates = "optional" or "required": set both, or remove the method'
        )
    if "password" in methods and not authentication.password.file:
        raise SettingsError(
            'gateway.authentication.methods has "password": set gateway.authentication.password.file, and write it '
            "with `waystation passwd FILE USER`"
        )
    if "jwt" in methods and not authentication.jwt.keys:
        raise SettingsError(
            'gateway.authentication.methods has "jwt": set gateway.authentication.jwt.keys to a JWKS or PEM file'
        )
    if authentication.client_id_is_user and (not methods or "anonymous" in methods):
        raise SettingsError(
            "gateway.authentication.client_id_is_user = true requires that every client has a user name: list methods, "
            'without "anonymous", or set it to false'
        )
