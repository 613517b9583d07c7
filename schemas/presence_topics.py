"""`$presence/<client id>`: the topics that report which clients connect and disconnect (R12).

The ledger writes their messages, which go through the router like all others; no client may publish there. A message is
retained, without expiry, while the client is online.
"""

from schemas.origin import PRESENCE_ROOT
from schemas.states import PresenceState

_ESCAPED = str.maketrans({"%": "%25", "+": "%2B", "#": "%23"})


def presence_topic(client: str) -> str:
    """The topic of a client. Characters that a topic name may not contain, and `%`, are percent-encoded (RFC 3986,
    2.1)."""
    return f"{PRESENCE_ROOT}/{client.translate(_ESCAPED)}"


def is_presence(topic: str) -> bool:
    """Whether this is a presence topic."""
    return topic.startswith(PRESENCE_ROOT) and topic[len(PRESENCE_ROOT) :][:1] in ("", "/")


def presence_payload(state: PresenceState) -> dict[str, object]:
    """The message to subscribers, for JSON: whether the client is online, by how many attachments, since when (µs since
    the epoch, by its gateway's clock; by the broker's if the gateway is gone), and if it is offline, why. Address, user
    and gateway are left out; the ledger has them."""
    live = sum(one.live for one in state.attachments)
    fields = {"online": state.online, "attachments": live, "at_us": state.at_us, "reason": state.reason}
    return {"client": state.client, **fields}
