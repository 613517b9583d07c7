"""Where a gateway sends a client: Server Reference in CONNACK and DISCONNECT with 0x9C or 0x9D (MQTT 5.0, 4.11; G14).

The client keeps its bearer, so it never goes from TLS to a connection without, and the other gateway's certificate is
verified as any other. What the gateway names may be hostile: its length and its characters are checked.
"""

import re
from typing import Final

from edge.client.connect_points import DEFAULT_PORTS, ConnectPoint
from mqtt.client_events import Closed
from mqtt.codes import ReasonCode

FOLLOWS: Final = ("server-reference", "follow")
"""The user property of CONNECT by which a client says that it goes where it is sent. Gateways send nobody else away."""

REFERENCES_MAX: Final = 10
_MOVED: Final = (ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED)
_REFERENCE: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%]{2,64})\]|(?P<host>[0-9A-Za-z._-]{1,253}))(?::(?P<port>\d{1,5}))?"
)


def sent_to(closed: Closed, at: ConnectPoint) -> ConnectPoint | None:
    """The first other connect point, of the bearer of `at`, that the end of a connection to `at` names."""
    text = (closed.properties or {}).get("server_reference", "")
    if closed.reason not in _MOVED:
        return None
    for reference in text.split(maxsplit=REFERENCES_MAX)[:REFERENCES_MAX]:
        found = _REFERENCE.fullmatch(reference)
        if found is None:
            continue
        port = int(found["port"]) if found["port"] else DEFAULT_PORTS[at.protocol]
        point = ConnectPoint(at.protocol, found["v6"] or found["host"], port, at.path)
        if 1 <= port <= 65_535 and point != at:
            return point
    return None
