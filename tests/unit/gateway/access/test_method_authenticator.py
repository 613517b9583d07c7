"""The authenticator: methods in their order, client ids, further rules (R11); and what the settings must not leave
open."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from gateway.access.access import open_access
from gateway.access.acl import parse
from gateway.access.authorizer import AclRules, Authorizer
from gateway.access.method_authenticator import MethodAuthenticator
from gateway.access.methods import AnonymousMethod, CertificateMethod, EverybodyMethod, Identity, Method
from gateway.errors import NotAdmitted
from gateway.host.authenticator import Credentials
from gateway.shard.rules import ClientRules
from mqtt.codes import ReasonCode
from schemas.errors import SettingsError
from schemas.settings import load_settings, process_settings
from tests.unit.schemas.test_settings_errors import overlay

BAD, NOT, BUSY = ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED, ReasonCode.SERVER_BUSY


class Knows:
    """Knows one password; others are wrong, or of no kind it looks at."""

    def __init__(self, name: str, password: bytes, refuses: ReasonCode | None = BAD) -> None:
        self.name = name
        self._password = password
        self._refuses = refuses

    async def identify(self, credentials: Credentials) -> Identity | None:
        if credentials.password is None:
            return None
        if credentials.password == self._password:
            return Identity(self.name, 5.0)
        if self._refuses is not None:
            raise NotAdmitted(self._refuses, self.name)
        return None

    def close(self) -> None:
        pass


def shown(**changes: Any) -> Credentials:
    return Credentials("c", None, None, None, "peer", "mqtt")._replace(**changes)


def admit(methods: list[Method], counts: Counter[str] | None = None, *, client_id_is_user: bool = False, **shows: Any):
    authenticator = MethodAuthenticator(
        methods, None, Counter() if counts is None else counts, client_id_is_user=client_id_is_user
    )
    return asyncio.run(authenticator.admit(shown(**shows)))


def refusal(methods: list[Method], **shows: Any) -> tuple[ReasonCode, dict[str, int]]:
    counts: Counter[str] = Counter()
    with pytest.raises(NotAdmitted) as raised:
        admit(methods, counts, **shows)
    return raised.value.reason, dict(counts)


def test_the_first_that_knows_the_client_decides() -> None:
    """R11: what one method refuses the next one may know."""
    one, two = Knows("one", b"1"), Knows("two", b"2")
    assert admit([one, two], password=b"1").user == "one"
    rules = admit([one, two], password=b"2")
    assert (rules.user, rules.until, rules.open) == ("two", 5.0, True)
    assert refusal([one, two], password=b"3") == (BAD, {"not_admitted_one": 1})
    assert admit([CertificateMethod(), one], certificate="carol", password=b"3").user == "carol"
    assert admit([EverybodyMethod()], username="x", password=b"y").user == ""


def test_who_shows_something_wrong_is_not_anonymous() -> None:
    """R11: a wrong password must not become no password."""
    one, silent, anonymous = Knows("one", b"1"), Knows("silent", b"1", None), AnonymousMethod()
    assert admit([one, anonymous]).user == ""
    assert refusal([one, anonymous], password=b"2")[0] is BAD
    assert refusal([silent, anonymous], password=b"2") == (BAD, {"not_admitted_unidentified": 1})
    assert refusal([anonymous], username="alice")[0] is BAD
    assert refusal([CertificateMethod(), anonymous], certificate="a\nb")[0] is NOT
    assert refusal([one]) == (NOT, {"not_admitted_unidentified": 1})


def test_a_busy_method_ends_the_asking() -> None:
    assert refusal([Knows("one", b"1", BUSY), Knows("two", b"2")], password=b"2") == (BUSY, {"not_admitted_busy": 1})


def test_the_client_id_may_have_to_be_the_user() -> None:
    """R11."""
    one = Knows("one", b"1")
    assert admit([one], client_id_is_user=True, client="one", password=b"1").user == "one"
    assert refusal([one], client_id_is_user=True, client="two", password=b"1") == (NOT, {"not_admitted_client_id": 1})


def test_rules_by_topic_and_further_rules_are_put_together() -> None:
    """R11, Q12: what wraps the rules sees who the client is."""
    seen: list[tuple[ClientRules, Credentials]] = []

    def wrap(rules: ClientRules, credentials: Credentials) -> ClientRules:
        seen.append((rules, credentials))
        return rules

    authorizer = Authorizer(parse("", "acl", default=False), Counter())
    authenticator = MethodAuthenticator([Knows("one", b"1")], authorizer, Counter(), wrap=wrap)
    rules = asyncio.run(authenticator.admit(shown(password=b"1", bearer="http")))
    assert isinstance(rules, AclRules)
    assert (rules.user, rules.until, rules.open) == ("one", 5.0, False)
    assert seen == [(rules, shown(password=b"1", bearer="http"))]


def test_without_any_setting_everybody_may_do_everything_on_loopback() -> None:
    """R11."""
    settings = process_settings({}).gateway
    access = open_access(settings, lambda: 0.0, Counter())
    rules = asyncio.run(access.authenticator.admit(shown(username="x", password=b"y")))
    assert (rules.user, rules.open, access.files) == ("", True, [])


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "example.com"])
def test_a_gateway_without_authentication_must_not_be_reached_from_elsewhere(host: str) -> None:
    """R11: it does not start."""
    with pytest.raises(SettingsError, match=r"gateway\.host = .* gateway\.authentication\.methods is empty"):
        process_settings({"WAYSTATION_GATEWAY__HOST": host})
    chosen = {"WAYSTATION_GATEWAY__AUTHENTICATION__METHODS": '["anonymous"]'}  # somebody has thought of it
    assert process_settings({"WAYSTATION_GATEWAY__HOST": host, **chosen}).gateway.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses_are_known(host: str) -> None:
    assert process_settings({"WAYSTATION_GATEWAY__HOST": host}).gateway.host == host


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("authentication.methods = ['password', 'none']", ["methods", "none", "anonymous"]),
        ("authentication.methods = ['jwt', 'jwt']", ["methods", "twice"]),
        ("authentication.methods = ['password']", ["password.file", "waystation passwd"]),
        ("authentication.methods = ['jwt']", ["jwt.keys"]),
        ("authentication.methods = ['certificate']", ["certificate", "client_certificates"]),
        ("authentication.client_id_is_user = true", ["client_id_is_user"]),
        ("authentication.jwt.algorithms = ['none']", ["jwt.algorithms", "none", "RS256"]),
        ("authentication.jwt.algorithms = []", ["jwt.algorithms"]),
        ("tls.mqtts_port = 8883", ["gateway.tls.certificate", "gateway.tls.key"]),
        ("tls.mqtts_port = 'on'", ["gateway.tls.mqtts_port", '"on"', "off", "65535"]),
        ("tls.client_certificates = 'required'", ["gateway.tls.client_ca"]),
        ("tls.minimum_version = '1.1'", ["gateway.tls.minimum_version", "1.1", "1.2"]),
        ("authorization.default = 'perhaps'", ["gateway.authorization.default", '"allow", "deny"']),
    ],
)
def test_settings_that_do_not_go_together_are_named(tmp_path: Any, text: str, named: list[str]) -> None:
    """R11."""
    with pytest.raises(SettingsError) as raised:
        load_settings(overlay(tmp_path, f"[gateway]\n{text}\n"), {})
    for word in named:
        assert word in str(raised.value)


def test_a_listener_can_be_switched_off_and_on_in_the_environment() -> None:
    """G11: a port is a number or "off"."""
    settings = process_settings(
        {
            "WAYSTATION_GATEWAY__MQTT_PORT": "off",
            "WAYSTATION_GATEWAY__TLS__MQTTS_PORT": "8883",
            "WAYSTATION_GATEWAY__TLS__CERTIFICATE": "cert.pem",
            "WAYSTATION_GATEWAY__TLS__KEY": "key.pem",
        }
    ).gateway
    assert (settings.mqtt_port, settings.tls.mqtts_port, settings.tls.wss_port) == ("off", 8883, "off")
    with pytest.raises(SettingsError, match=r'gateway\.metrics_port = "off"'):
        process_settings({"WAYSTATION_GATEWAY__METRICS_PORT": "off"})


def test_files_are_read_when_the_gateway_starts(tmp_path: Any) -> None:
    """R11: a file that cannot be used ends it, with its name."""
    settings = process_settings({}).gateway
    authorization = msgspec.structs.replace(settings.authorization, file=str(tmp_path / "acl.toml"))
    with pytest.raises(SettingsError, match=r"acl\.toml \(gateway\.authorization\.file\)"):
        open_access(msgspec.structs.replace(settings, authorization=authorization), lambda: 0.0, Counter())
