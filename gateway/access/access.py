"""Builds the authenticator, the authorizer and the files behind them from the settings."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import structlog

from gateway.access.acl import parse
from gateway.access.authorizer import Authorizer
from gateway.access.method_authenticator import MethodAuthenticator, Wrap
from gateway.access.methods import AnonymousMethod, CertificateMethod, EverybodyMethod, Method
from gateway.access.passwords import PasswordMethod, read_passwords
from gateway.access.tokens import TokenMethod, read_keys
from gateway.watched import Watched, read_text
from schemas.access_settings import AuthenticationSettings, AuthorizationSettings
from schemas.sections import OFF
from schemas.settings import GatewaySettings
from schemas.this_machine import is_loopback

log = structlog.get_logger(__name__)


class Access(NamedTuple):
    """`files` must be watched; `authorizer` is None without a file of rules."""

    authenticator: MethodAuthenticator
    authorizer: Authorizer | None
    files: list[Watched[Any]]


def open_access(
    settings: GatewaySettings, clock: Callable[[], float], counts: Counter[str], wrap: Wrap | None = None
) -> Access:
    """Reads all files. `clock` gives seconds since the epoch; refusals are counted in `counts`. Raises SettingsError if
    a file cannot be used."""
    files: list[Watched[Any]] = []
    methods = _methods(settings.authentication, clock, files)
    authorizer = _authorizer(settings.authorization, counts, files)
    authenticator = MethodAuthenticator(
        methods, authorizer, counts, client_id_is_user=settings.authentication.client_id_is_user, wrap=wrap
    )
    _say_what_is_open(settings, has_rules=authorizer is not None)
    return Access(authenticator, authorizer, files)


def _methods(settings: AuthenticationSettings, clock: Callable[[], float], files: list[Watched[Any]]) -> list[Method]:
    if not settings.methods:
        return [EverybodyMethod()]
    methods: list[Method] = []
    for name in settings.methods:
        match name:
            case "password":
                path = settings.password.file
                passwords = Watched([path], partial(read_passwords, path))
                files.append(passwords)
                methods.append(PasswordMethod(passwords, settings.password))
            case "jwt":
                keys = Watched([settings.jwt.keys], partial(read_keys, settings.jwt.keys, settings.jwt.algorithms))
                files.append(keys)
                methods.append(TokenMethod(keys, settings.jwt, clock))
            case "certificate":
                methods.append(CertificateMethod())
            case _:
                methods.append(AnonymousMethod())
    return methods


def _authorizer(settings: AuthorizationSettings, counts: Counter[str], files: list[Watched[Any]]) -> Authorizer | None:
    path = settings.file
    if not path:
        return None
    default = settings.default == "allow"
    file = Watched([path], lambda: parse(read_text(path, "gateway.authorization.file"), path, default=default))
    authorizer = Authorizer(file.current, counts)
    file.then = authorizer.replace
    files.append(file)
    return authorizer


def _say_what_is_open(settings: GatewaySettings, *, has_rules: bool) -> None:
    """Logs warnings about access that an operator may have left open by mistake."""
    methods, host = settings.authentication.methods, settings.host
    if not methods:
        may = "do what the rules for everyone allow" if has_rules else "do everything"
        log.warning(f"gateway.authentication.methods is empty: everybody who reaches {host} may {may}")
    elif "anonymous" in methods and not has_rules:
        log.warning("anonymous clients may do everything: set gateway.authorization.file to restrict them")
    plain = [name for name in ("mqtt_port", "websocket_port", "http_port") if getattr(settings, name) != OFF]
    if plain and not is_loopback(host) and {"password", "jwt"} & set(methods):
        names = " and ".join(f"gateway.{name}" for name in plain)
        log.warning(f'{names}: passwords and tokens are not encrypted; set to "off" to allow only TLS')
