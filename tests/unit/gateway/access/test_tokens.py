"""JSON Web Tokens: what is let in, and every way to forge one that is known (R11, RFC 8725)."""

import base64
import contextlib
import hashlib
import hmac
import json
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.methods import Identity
from gateway.access.tokens import TokenMethod, read_keys
from gateway.errors import NotAdmitted
from gateway.host.authenticator import Credentials
from gateway.watched import Watched
from harness.keys import ec_key, ed_key, jwk, pem, public_pem, rsa_key
from mqtt.codes import ReasonCode
from schemas.access_settings import JwtSettings
from schemas.errors import SettingsError
from tests.draw import examples

NOW = 1_900_000_000.0
SECRET = b"0123456789abcdef0123456789abcdef"
ALL = ("RS256", "PS256", "ES256", "EdDSA", "HS256")


def configured(**changes: Any) -> JwtSettings:
    values = {
        "keys": "keys",
        "algorithms": ALL,
        "audience": "waystation",
        "issuer": "https://issuer",
        "user_claim": "sub",
        "leeway_s": 5.0,
    }
    return JwtSettings(**{**values, **changes})


def oct_key(secret: bytes = SECRET, **more: Any) -> dict[str, Any]:
    return {"kty": "oct", "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode(), **more}


def everything() -> bytes:
    keys = [jwk(rsa_key(), kid="r"), jwk(ec_key(), kid="e"), jwk(ed_key(), kid="d"), oct_key(kid="o")]
    return json.dumps({"keys": keys}).encode()


def method(tmp_path: Path, file: bytes | None = None, **changes: Any) -> TokenMethod:
    path = tmp_path / "keys"
    path.write_bytes(everything() if file is None else file)
    chosen = configured(**changes)
    return TokenMethod(Watched([str(path)], lambda: read_keys(str(path), chosen.algorithms)), chosen, lambda: NOW)


@pytest.fixture(scope="module")
def one_method(tmp_path_factory: pytest.TempPathFactory) -> TokenMethod:
    """For all examples."""
    return method(tmp_path_factory.mktemp("keys"))


def shown(token: str | bytes) -> Credentials:
    password = token.encode() if isinstance(token, str) else token
    return Credentials("c", None, password, None, "peer", "http")


def at_once(work: Coroutine[Any, Any, Identity | None]) -> Identity | None:
    """The result of what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: Identity | None = ended.value
        return found
    raise AssertionError("it waits")


def identify(tokens: TokenMethod, token: str | bytes) -> Identity | None:
    return at_once(tokens.identify(shown(token)))


def refusal(tokens: TokenMethod, token: str | bytes) -> str:
    with pytest.raises(NotAdmitted) as raised:
        identify(tokens, token)
    assert raised.value.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    return str(raised.value)


def claims(**changes: Any) -> dict[str, Any]:
    all_claims = {"sub": "alice", "aud": "waystation", "iss": "https://issuer", "exp": NOW + 60, **changes}
    return {name: value for name, value in all_claims.items() if value is not None}


def sign(key: Any, algorithm: str, header: dict[str, Any] | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers=header)


def forged(header: dict[str, Any] | str, payload: dict[str, Any], secret: bytes | None = None) -> bytes:
    """A token put together by hand; signed with HMAC if there is a secret."""

    def part(value: Any) -> bytes:
        text = value if isinstance(value, str) else json.dumps(value)
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=")

    signed = part(header) + b"." + part(payload)
    signature = b"" if secret is None else hmac.digest(secret, signed, hashlib.sha256)
    return signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(rsa_key, "RS256"), (rsa_key, "PS256"), (ec_key, "ES256"), (ed_key, "EdDSA"), (lambda: SECRET, "HS256")],
)
def test_a_good_token_says_who_it_is_and_until_when(tmp_path: Path, key: Any, algorithm: str) -> None:
    """R11: with or without the name of its key."""
    tokens = method(tmp_path)
    assert identify(tokens, sign(key(), algorithm)) == Identity("alice", NOW + 65)
    kid = {"RS256": "r", "PS256": "r", "ES256": "e", "EdDSA": "d", "HS256": "o"}[algorithm]
    assert identify(tokens, sign(key(), algorithm, {"kid": kid})) == Identity("alice", NOW + 65)


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_without_signature_is_refused(tmp_path: Path, name: str) -> None:
    """RFC 8725, 2.1."""
    tokens = method(tmp_path)
    assert refusal(tokens, forged({"alg": name, "typ": "JWT"}, claims()))
    assert refusal(tokens, forged({"alg": name, "kid": "r"}, claims(), SECRET))


def test_a_public_key_is_no_secret(tmp_path: Path) -> None:
    """RFC 8725, 2.1: HS256 signed with the very text of the public key."""
    for file in (public_pem(rsa_key()), json.dumps({"keys": [jwk(rsa_key(), kid="r")]}).encode()):
        tokens = method(tmp_path, file)
        for secret in (public_pem(rsa_key()), public_pem(rsa_key()).strip(), file, json.dumps(jwk(rsa_key())).encode()):
            assert refusal(tokens, forged({"alg": "HS256", "typ": "JWT"}, claims(), secret))
            assert refusal(tokens, forged({"alg": "HS256", "kid": "r"}, claims(), secret))


def test_what_comes_with_the_token_is_no_key(tmp_path: Path) -> None:
    """RFC 7515, 4.1: `jwk`, `jku` and `x5u` in the header are not looked at."""
    tokens = method(tmp_path)
    other = rsa_key("attacker")
    for header in ({"jwk": jwk(other)}, {"jku": "https://attacker/keys"}, {"x5u": "https://attacker/cert"}):
        assert refusal(tokens, sign(other, "RS256", {**header, "kid": "r"}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": NOW - 6}, "expired"),
        ({"exp": None}, "it has no claim"),
        ({"exp": "tomorrow"}, "is not a number"),
        ({"exp": True}, "is not a number"),
        ({"exp": float("inf")}, "is not a number"),
        ({"exp": 10**400}, "is not a number"),
        ({"nbf": NOW + 6}, "not valid yet"),
        ({"nbf": "x"}, "is not a number"),
        ({"aud": "another"}, "its audience is not"),
        ({"aud": None}, "it has no claim"),
        ({"iss": "https://attacker"}, "its issuer is not"),
        ({"iss": None}, "it has no claim"),
        ({"sub": None}, "it has no claim"),
        ({"sub": ""}, "is not a valid user name"),
        ({"sub": "a\0b"}, "is not a valid user name"),
        ({"sub": "x" * 256}, "is not a valid user name"),
    ],
)
def test_a_token_for_another_time_place_or_nobody_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    """R11: the reason says which, and does not hold the token."""
    assert why in refusal(method(tmp_path), jwt.encode(claims(**changes), SECRET, "HS256"))


def test_leeway_is_for_both_ends(tmp_path: Path) -> None:
    tokens = method(tmp_path)
    assert identify(tokens, sign(SECRET, "HS256", exp=NOW - 4)) == Identity("alice", NOW + 1)
    assert identify(tokens, sign(SECRET, "HS256", nbf=NOW + 4, iat=NOW + 4)) is not None


def test_a_token_for_some_audience_is_refused_where_none_is_configured(tmp_path: Path) -> None:
    """RFC 7519, 4.1.3."""
    tokens = method(tmp_path, audience="", issuer="")
    assert "its audience is not" in refusal(tokens, sign(SECRET, "HS256"))
    assert identify(tokens, sign(SECRET, "HS256", aud=None, iss=None)) is not None


def test_another_key_another_algorithm_or_a_changed_token_is_refused(tmp_path: Path) -> None:
    tokens = method(tmp_path, algorithms=("RS256",))
    good = sign(rsa_key(), "RS256")
    assert identify(tokens, good)
    assert refusal(tokens, sign(rsa_key("other"), "RS256"))
    assert refusal(tokens, sign(rsa_key(), "PS256"))
    assert refusal(tokens, sign(ec_key(), "ES256"))
    assert refusal(tokens, sign(rsa_key(), "RS256", {"kid": "gone"}))
    head, _, signature = good.split(".")
    other = jwt.encode(claims(sub="root"), SECRET, "HS256").split(".")[1]
    assert refusal(tokens, f"{head}.{other}.{signature}")
    assert refusal(tokens, good[:-4] + "AAAA")
    assert refusal(tokens, sign(rsa_key(), "RS256", {"crit": ["exp"]}))


def test_what_is_no_token_is_for_other_methods(tmp_path: Path) -> None:
    tokens = method(tmp_path)
    for password in (b"", b"secret", b"a.b.c", b"ey.b"):
        assert identify(tokens, password) is None
    assert at_once(tokens.identify(Credentials("c", "alice", None, None, "peer", "mqtt"))) is None


@settings(max_examples=examples(200), deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60).map(lambda raw: b"ey" + raw.replace(b".", b"") + b".e30.AA"),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["alg", "kid"]), inner),
        ).map(lambda header: forged(json.dumps({"alg": "HS256", "x": header} if header else header), claims(), SECRET)),
        st.fixed_dictionaries(
            {"alg": st.just("HS256")},
            optional={n: st.none() | st.integers() | st.lists(st.text()) for n in ("kid", "crit", "b64", "typ")},
        ).map(lambda header: forged(header, {"sub": 1, "exp": []}, SECRET)),
    )
)
def test_a_hostile_token_gets_nothing_but_a_refusal(one_method: TokenMethod, token: bytes) -> None:
    """Everything from a socket is hostile: no other error leaves."""
    with contextlib.suppress(NotAdmitted):
        identify(one_method, token)


def test_deep_and_long_tokens_are_refused(tmp_path: Path) -> None:
    tokens = method(tmp_path)
    for depth in (100, 1000, 5000):
        assert refusal(tokens, forged('{"alg":' + "[" * depth, claims()))
    assert "16384" in refusal(tokens, b"ey" + b"x" * 20_000 + b".e30.AA")
    signed = jwt.encode({**claims(), "deep": json.loads("[" * 900 + "]" * 900)}, SECRET, "HS256")
    assert identify(tokens, signed) is not None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aud": "other"}, "its audience is not gateway.authentication.jwt.audience"),
        ({"iss": "other"}, "its issuer is not gateway.authentication.jwt.issuer"),
        ({"sub": None}, "it has no claim 'sub'"),
    ],
)
def test_the_reason_of_a_refusal_is_in_words(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    tokens = method(tmp_path, public_pem(ec_key()))
    assert refusal(tokens, sign(ec_key(), "ES256", **changes)) == f"the token is not valid: {why}"
    assert refusal(tokens, sign(rsa_key(), "RS384")) == (
        "the token is not valid: no key of gateway.authentication.jwt.keys has its algorithm and its kid"
    )
    assert refusal(tokens, "eA.e30.e30") == "the token is not valid: it is malformed"


def test_keys_from_a_pem_file(tmp_path: Path) -> None:
    """Several kinds in one file; each for its own algorithms."""
    tokens = method(tmp_path, public_pem(rsa_key()) + public_pem(ec_key()) + public_pem(ed_key()))
    for key, algorithm in ((rsa_key(), "RS256"), (rsa_key(), "PS256"), (ec_key(), "ES256"), (ed_key(), "EdDSA")):
        assert identify(tokens, sign(key, algorithm)) is not None


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "neither a JWKS nor a PEM file of public keys: it has something other than public keys"),
        (b"{}", "neither a JWKS nor a PEM file of public keys: it has no list of keys, or one of its keys is damaged"),
        (b'{"keys": [1]}', "one of its keys is damaged or of an unknown kind; write {"),
        (b'{"keys": c2hvcnQ}', "it is not valid JSON at line 1, column 10; write {"),
        (b'{"keys": []}', "has no key for"),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}', "no"),
        (pem(ec_key()), "neither a JWKS nor a PEM"),
        (public_pem(ec_key()) + pem(ec_key()), "neither a JWKS nor a PEM"),
        (json.dumps({"keys": [oct_key(b"short")]}).encode(), "has no key for"),
        (json.dumps({"keys": [oct_key(use="enc")]}).encode(), "has no key for"),
        (public_pem(rsa_key(bits=1024)), "2048 bits"),
    ],
)
def test_a_file_without_usable_keys_is_an_error(tmp_path: Path, file: bytes, why: str) -> None:
    """R11: it is named with its setting, and nothing of the keys is shown."""
    with pytest.raises(SettingsError) as raised:
        method(tmp_path, file)
    assert "gateway.authentication.jwt.keys" in str(raised.value)
    assert why in str(raised.value)
    assert "c2hvcnQ" not in str(raised.value)
    assert not re.search("[a-z]Error", str(raised.value)), "a word for programmers"
