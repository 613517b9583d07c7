"""SUBSCRIBE as one change of the store: each filter has an answer of its own (MQTT 5.0, 3.9.3)."""

from edge.agent.mqtt.store import MqttStore, Taken
from edge.client.errors import StoreFull
from mqtt.codes import ReasonCode
from mqtt.packets import Subscribe
from mqtt.topics import SHARED_PREFIX


def subscribe_all(
    store: MqttStore, session: int, client_id: str, packet: Subscribe, *, is_v5: bool
) -> tuple[list[ReasonCode], list[Taken]]:
    """The reason codes, and the retained messages for the client. The filters are valid."""
    [identifier] = (packet.properties or {}).get("subscription_identifier", [0])
    reasons: list[ReasonCode] = []
    given: list[Taken] = []
    for wanted in packet.filters:
        if wanted.filter.startswith(SHARED_PREFIX):  # the platform would share it among all clients of the agent
            reasons.append(ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
            continue
        try:
            with store.part():
                taken = store.subscribe(session, client_id, wanted, identifier)
        except StoreFull:  # the retained messages do not fit into the queue
            taken = None
        if taken is None:
            reasons.append(ReasonCode.QUOTA_EXCEEDED)
        else:
            reasons.append(ReasonCode(wanted.qos))
            given.append(taken)
    if not is_v5:  # 3.1.1 has one failure only
        reasons = [min(reason, ReasonCode.UNSPECIFIED_ERROR) for reason in reasons]
    return reasons, given


def unsubscribe_all(store: MqttStore, session: int, filters: list[str]) -> list[ReasonCode]:
    """The reason codes."""
    found = [store.sessions.unsubscribe(session, topic_filter) for topic_filter in filters]
    return [ReasonCode.SUCCESS if was_there else ReasonCode.NO_SUBSCRIPTION_EXISTED for was_there in found]
