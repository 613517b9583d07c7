"""Connect points: where gateways accept clients, as the application lists them or an access point answers (G1).

An access point answers with JSON, in the order in which to try:
`{"connect_points": [{"protocol": "mqtt", "address": "127.0.0.1", "port": 1883}, …]}`. Whatever answers may be hostile,
or the login page of a network: types, lengths and the number of points are checked.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Annotated, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import msgspec

from edge.client.errors import ClientError
from schemas.undecodable import UNDECODABLE

Bearer: TypeAlias = Literal["mqtt", "mqtts", "ws", "wss", "quic", "http", "https"]
"""What access points are asked for."""

BEARERS: Final[tuple[str, ...]] = get_args(Bearer)
SCHEMES: Final = (*BEARERS, "kafka")
"""Of connect points. No access point names Kafka's brokers: who reaches them is in the data centre, and knows them."""

Family: TypeAlias = Literal["mqtt", "http", "kafka"]
POINTS_MAX: Final = 100
WEBSOCKET_PATH: Final = "/mqtt"
DEFAULT_PORTS: Final = {
    "mqtt": 1883,
    "mqtts": 8883,
    "ws": 80,
    "wss": 443,
    "quic": 14567,
    "http": 80,
    "https": 443,
    "kafka": 9092,
}
_FAMILIES: Final[dict[str, Family]] = {"http": "http", "https": "http", "kafka": "kafka"}
_HOST: Final = re.compile(r"[0-9A-Za-z._:%-]{1,253}")


@dataclass(frozen=True)
class ConnectPoint:
    """`path` is that of a WebSocket, "" for others."""

    protocol: str
    host: str
    port: int
    path: str = ""

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("mqtts", "wss", "quic", "https")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}{self.path}"


def family_of(bearer: str) -> Family:
    """Which bearers a client can change between, because they carry the same session: those over which MQTT runs, those
    over which HTTP runs, and Kafka."""
    return _FAMILIES.get(bearer, "mqtt")


class NoConnectPoints(ClientError):
    """An access point gave no usable answer; the text says why, without the access point's name."""


class _Point(msgspec.Struct):
    protocol: Annotated[str, msgspec.Meta(max_length=16)]
    address: Annotated[str, msgspec.Meta(max_length=253)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class _Answer(msgspec.Struct):
    connect_points: Annotated[list[_Point], msgspec.Meta(max_length=POINTS_MAX)]


def decode_answer(body: bytes, bearer: str) -> list[ConnectPoint]:
    """The connect points for `bearer` in an access point's answer, in order, each once. Raises NoConnectPoints."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except UNDECODABLE as error:
        if body.lstrip()[:1] == b"<":
            raise NoConnectPoints("the answer is HTML: perhaps this network has a login page") from None
        raise NoConnectPoints(f"the answer is no list of connect points ({error})") from None
    points: dict[ConnectPoint, None] = {}
    for point in answer.connect_points:
        if point.protocol != bearer:
            continue  # never a bearer that was not asked for, such as one without TLS
        if not _is_host(point.address):
            raise NoConnectPoints(f"the answer has the address {point.address[:80]!a}, which is none")
        path = WEBSOCKET_PATH if bearer in ("ws", "wss") else ""
        points[ConnectPoint(bearer, point.address, point.port, path)] = None
    if not points:
        raise NoConnectPoints(f"no gateway accepts clients over {bearer} now")
    return list(points)


def _is_host(text: str) -> bool:
    """Whether it is a name or an address. One with a colon is an IPv6 address, or no URL can name it."""
    if ":" in text:
        try:
            IPv6Address(text)
        except ValueError:
            return False
    return _HOST.fullmatch(text) is not None


def parse_connect_points(urls: Iterable[str]) -> list[ConnectPoint]:
    """Connect points that the application lists, such as `mqtt://gateway-1:1883`, `wss://gateway-2/mqtt` and
    `https://gateway-3`. `kafka://broker-1:9092,broker-2:9092` is two. Raises ValueError."""
    points = [_parse(one) for url in urls for one in _each(url)]
    if len({family_of(point.protocol) for point in points}) > 1:
        raise ValueError("connect points of MQTT, HTTP and Kafka cannot be mixed: a client has one session")
    if len(points) > POINTS_MAX:
        raise ValueError(f"{len(points)} connect points are too many: give {POINTS_MAX} at most")
    return list(dict.fromkeys(points))


def _each(url: str) -> list[str]:
    """The brokers of a `kafka://` URL are listed as Kafka's clients list them."""
    scheme, separator, rest = url.partition("://")
    return [f"kafka://{broker.strip()}" for broker in rest.split(",")] if scheme == "kafka" and separator else [url]


def _parse(url: str) -> ConnectPoint:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not a connect point: {error}") from None
    if parts.scheme not in SCHEMES or not _HOST.fullmatch(host):
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(f"{url!r} is not a connect point: write one of {known} with a host, such as mqtt://host:1883")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a connect point must not contain credentials: use the options username and password")
    is_websocket = parts.scheme in ("ws", "wss")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not a connect point: it has a query or a fragment")
    if not is_websocket and parts.path not in ("", "/"):
        raise ValueError(f"{url!r} has a path, but only ws:// and wss:// can have one")
    path = (parts.path or WEBSOCKET_PATH) if is_websocket else ""
    return ConnectPoint(parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port, path)
