"""`$presence/<client id>`: the topics that tell clients who comes and goes (R12).

Messages on them come from the ledger, through the router like all others; no client may publish there. They are
retained while the client is online, without an expiry.
"""

from schemas.origin import PRESENCE_ROOT
from schemas.states import PresenceState

_ESCAPED = str.maketrans({"%": "%25", "+": "%2B", "#": "%23"})


def presence_topic(client: str) -> str:
    """The topic of a client; what may not stand in a topic name is percent-encoded (RFC 3986, 2.1), and `%` too."""
    return f"{PRESENCE_ROOT}/{client.translate(_ESCAPED)}"


def is_presence(topic: str) -> bool:
    """Whether a topic name belongs here."""
    return topic.startswith(PRESENCE_ROOT) and topic[len(PRESENCE_ROOT) :][:1] in ("", "/")


def presence_payload(state: PresenceState) -> dict[str, object]:
    """What subscribers are told, as JSON: whether the client is online, by how many attachments, since when (µs since
    the epoch, by its gateway's clock; by the broker's if the gateway is gone), and if it is not, why. Not from where,
    as whom and by which gateway: that is in the ledger."""
    live = sum(one.live for one in state.attachments)
    fields = {"online": state.online, "attachments": live, "at_us": state.at_us, "reason": state.reason}
    return {"client": state.client, **fields}
