"""JSON Web Tokens (RFC 7519), in the password field or as HTTP bearer, against keys from a JWKS (RFC 7517) or PEM file.

A key is used only for the configured algorithms of its own kind, whatever the token's header says. So `none`, or HS256
with a public key as the secret, cannot pass (RFC 8725, 3.1). `exp` is required.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gateway.access.methods import Identity
from gateway.errors import NotAdmitted
from gateway.host.authenticator import Credentials
from gateway.watched import Watched, read_text
from mqtt.codes import ReasonCode
from schemas.access_settings import JwtSettings
from schemas.errors import SettingsError
from schemas.password_file import is_user_name

_SETTING = "gateway.authentication.jwt.keys"
_TOKEN_BYTES_MAX: Final = 16 * 1024
_KEYS_MAX: Final = 32
_PARTS = 3
_PEM_END = b"-----END PUBLIC KEY-----"
_HMAC_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA_BITS_MIN = 2048
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}

# What a library may raise for a hostile token; deep JSON causes RecursionError.
_BROKEN = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)

_INVALID: Final[Mapping[type[Exception], str]] = MappingProxyType(
    {
        jwt.InvalidSignatureError: "its signature is wrong",
        jwt.InvalidKeyError: f"no key of {_SETTING} has its algorithm and its kid",
        jwt.InvalidAudienceError: "its audience is not gateway.authentication.jwt.audience",
        jwt.InvalidIssuerError: "its issuer is not gateway.authentication.jwt.issuer",
    }
)


class VerificationKey(NamedTuple):
    """One key for one algorithm; `kid` is its name in the JWKS."""

    kid: str | None
    algorithm: str
    key: PyJWK


def read_keys(path: str, algorithms: Sequence[str]) -> list[VerificationKey]:
    """The keys in a JWKS or PEM file. Raises SettingsError, also if no key fits any of `algorithms`."""
    text = read_text(path, _SETTING)
    try:
        entries = json.loads(text)["keys"] if text.lstrip().startswith("{") else _pem_keys(text.encode())
        keys = [key for entry in entries for key in _usable(entry, algorithms)]
    except (*_BROKEN, KeyError, AttributeError, UnsupportedAlgorithm) as error:
        raise SettingsError(
            f"{path} ({_SETTING}) is neither a JWKS nor a PEM file of public keys: {_why_no_keys(text, error)}; write "
            '{"keys": […]} with public keys as JWKs, or only blocks of BEGIN PUBLIC KEY'
        ) from None
    if not keys:
        raise SettingsError(
            f"{path} ({_SETTING}) has no key for {', '.join(algorithms)}: RSA keys need {_RSA_BITS_MIN} bits, "
            "symmetric ones as many bits as their hash"
        )
    if len(keys) > _KEYS_MAX:
        raise SettingsError(f"{path} ({_SETTING}) has more than {_KEYS_MAX} keys: remove those no longer in use")
    return keys


class TokenMethod:
    """`clock` gives seconds since the epoch."""

    name = "jwt"

    def __init__(self, keys: Watched[list[VerificationKey]], settings: JwtSettings, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._options: Any = {
            "require": ["exp", settings.user_claim],
            **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat"), False),  # checked below, with our own clock
            "verify_sub": False,  # the user claim is checked below, whichever it is
            "verify_iss": bool(settings.issuer),
            "enforce_minimum_key_length": True,
        }

    async def identify(self, credentials: Credentials) -> Identity | None:
        """Ignores the user name: MQTT 3.1.1 allows no password without one."""
        token = credentials.password
        if not token or token.count(b".") != _PARTS - 1 or not token.startswith(b"e"):  # `{` in Base64
            return None
        if len(token) > _TOKEN_BYTES_MAX:
            raise _refused(f"the token is longer than {_TOKEN_BYTES_MAX} bytes")
        try:
            claims = self._verified(token)
        except _BROKEN as error:
            raise _refused(f"the token is not valid: {_why_invalid(error)}") from None
        return self._identity(claims)

    def close(self) -> None:
        pass

    def _verified(self, token: bytes) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        kid, algorithm = header.get("kid"), header.get("alg")
        error: Exception = jwt.InvalidKeyError()
        for key in self._keys.current:
            if key.algorithm != algorithm or (kid is not None and key.kid is not None and key.kid != kid):
                continue
            try:
                return jwt.decode(
                    token,
                    key.key,
                    algorithms=[key.algorithm],
                    audience=self._settings.audience or None,
                    issuer=self._settings.issuer or None,
                    options=self._options,
                )
            except jwt.InvalidSignatureError as wrong:  # another key may fit
                error = wrong
        raise error

    def _identity(self, claims: dict[str, Any]) -> Identity:
        now, leeway = self._clock(), self._settings.leeway_s
        ends, begins, user = _moment(claims["exp"]), _moment(claims.get("nbf", 0)), claims[self._settings.user_claim]
        if ends is None or begins is None:
            raise _refused("the token has a time that is not a number")
        if ends + leeway <= now:
            raise _refused("the token has expired")
        if begins - leeway > now:
            raise _refused("the token is not valid yet")
        if not isinstance(user, str) or not is_user_name(user):
            raise _refused(f"the claim {self._settings.user_claim!r} of the token is not a valid user name")
        return Identity(user, ends + leeway)


def _why_no_keys(text: str, error: Exception) -> str:
    """Never the error's own text, which may contain a key."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not valid JSON at line {error.lineno}, column {error.colno}"
    if text.lstrip().startswith("{"):
        return "it has no list of keys, or one of its keys is damaged or of an unknown kind"
    return "it has something other than public keys, or one of them is damaged or of an unknown kind"


def _why_invalid(error: Exception) -> str:
    """In words that contain nothing of the token."""
    if isinstance(error, jwt.MissingRequiredClaimError):  # one of the names that this gateway requires
        return f"it has no claim {error.claim!r}"
    return next((why for kind, why in _INVALID.items() if isinstance(error, kind)), "it is malformed")


def _refused(detail: str) -> NotAdmitted:
    return NotAdmitted(ReasonCode.BAD_USER_NAME_OR_PASSWORD, detail)


def _moment(value: Any) -> float | None:
    """A NumericDate (RFC 7519, 2); None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        moment = float(value)
    except OverflowError:
        return None
    return moment if math.isfinite(moment) else None


def _pem_keys(text: bytes) -> list[dict[str, Any]]:
    """The public keys of a PEM file as JWKs."""
    *blocks, rest = text.split(_PEM_END)
    if not blocks or b"-----" in rest:
        raise ValueError("the file contains something other than public keys")
    return [_jwk(load_pem_public_key(block.strip() + _PEM_END + b"\n")) for block in blocks]


def _jwk(key: PublicKeyTypes) -> dict[str, Any]:
    if isinstance(key, RSAPublicKey):
        return RSAAlgorithm.to_jwk(key, as_dict=True)
    if isinstance(key, EllipticCurvePublicKey):
        return ECAlgorithm.to_jwk(key, as_dict=True)
    if isinstance(key, Ed25519PublicKey):
        return OKPAlgorithm.to_jwk(key, as_dict=True)
    raise TypeError("keys of this kind cannot sign tokens")


def _usable(entry: dict[str, Any], algorithms: Sequence[str]) -> list[VerificationKey]:
    """The JWK for each configured algorithm of its kind; none if it is not meant for signatures."""
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        return []
    kid = entry.get("kid")
    found = []
    for algorithm in algorithms:
        if entry.get("alg", algorithm) == algorithm and _is_of_kind(entry, algorithm):
            found.append(VerificationKey(kid, algorithm, PyJWK(entry, algorithm)))
    return [key for key in found if _is_long_enough(key)]


def _is_of_kind(entry: dict[str, Any], algorithm: str) -> bool:
    match entry.get("kty"):
        case "RSA":
            return algorithm[:2] in ("RS", "PS")
        case "EC" | "OKP":
            return _CURVES.get(entry.get("crv", "")) == algorithm
        case "oct":
            return algorithm in _HMAC_BYTES
    return False


def _is_long_enough(key: VerificationKey) -> bool:
    """Whether the key meets the minimum length of RFC 7518, 3.2 and 3.3."""
    if key.algorithm in _HMAC_BYTES:
        return len(key.key.key) >= _HMAC_BYTES[key.algorithm]
    return key.algorithm[:2] not in ("RS", "PS") or key.key.key.key_size >= _RSA_BITS_MIN
