"""What a client is told when something is refused, as far as its version of MQTT has words for it. Pure."""

from collections.abc import Sequence

from mqtt.codes import ALLOWED_REASONS, VERSION_5, PacketType, ReasonCode


def publish_refusal(version: int, qos: int, reason: ReasonCode) -> tuple[ReasonCode, bool]:
    """The reason why a PUBLISH is refused, as the client gets it, and whether the connection ends with it.

    MQTT 5 can tell the client the reason. 3.1.1 cannot, so the connection ends and the client retries later; likewise
    for a reason that no acknowledgement can carry. QoS 0 has no acknowledgement: the message is counted and dropped.
    """
    if reason is ReasonCode.PACKET_TOO_LARGE:  # the message is; acknowledgements have no code for that
        reason = ReasonCode.QUOTA_EXCEEDED
    ends = reason not in ALLOWED_REASONS[PacketType.PUBACK] or (qos > 0 and version != VERSION_5)
    return reason, ends


def suback_codes(version: int, codes: Sequence[ReasonCode]) -> list[ReasonCode]:
    """Those of a SUBACK: 3.1.1 has one for all failures (3.9.3)."""
    if version == VERSION_5:
        return list(codes)
    return [code if code < ReasonCode.UNSPECIFIED_ERROR else ReasonCode.UNSPECIFIED_ERROR for code in codes]
