"""Why a connection ended: one word for it in metrics (`closed_<word>`), presence events and the ledger (R12).

The word is the name of the MQTT reason code in small letters (MQTT 5.0, 2.4), as sent in DISCONNECT or CONNACK, but for
ends that no code tells apart: those below. docs/operators.md explains them all.
"""

from gateway.home.home import LOST_CONNECTING
from gateway.mqtt.codes import ReasonCode
from gateway.mqtt.connection import Closed

NORMAL_DISCONNECTION = "normal_disconnection"
DISCONNECT_WITH_WILL = "disconnect_with_will"
CONNECTION_LOST = "connection_lost"
CONNECT_TIMEOUT = "connect_timeout"
UNTRUSTED_PROXY = "untrusted_proxy"
PROXY_HEADER_MISSING = "proxy_header_missing"
PROXY_HEADER_MALFORMED = "proxy_header_malformed"


def end_reason(closed: Closed, *, is_lost: bool, is_connecting: bool, has_connect: bool) -> str:
    """The word for the end `closed`.

    `is_lost`: the transport ended before anybody ended the MQTT connection; `is_connecting`: while CONNECT was worked
    on; `has_connect`: a CONNECT had come.
    """
    if closed.clean:
        return NORMAL_DISCONNECTION if closed.reason == ReasonCode.NORMAL_DISCONNECTION else DISCONNECT_WITH_WILL
    if is_lost:
        return LOST_CONNECTING if is_connecting else CONNECTION_LOST
    if not has_connect and closed.reason == ReasonCode.UNSPECIFIED_ERROR:
        return CONNECT_TIMEOUT
    return closed.reason.name.lower()
