"""What clients are told of refusals, by their version (MQTT 5.0, 3.4.2, 3.9.3; MQTT 3.1.1, 3.9.3)."""

import pytest

from gateway.host.answers import publish_refusal, suback_codes
from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode


@pytest.mark.parametrize("reason", list(ReasonCode))
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_publish_is_refused_in_words_that_the_client_knows(version: int, qos: int, reason: ReasonCode) -> None:
    """A connection goes on only if nothing is told, or PUBACK and PUBREC of its version can tell it."""
    told, ends = publish_refusal(version, qos, reason)
    if not ends:
        assert told in ALLOWED_REASONS[PacketType.PUBACK]
        assert qos == 0 or version == 5
    if reason is not ReasonCode.PACKET_TOO_LARGE:
        assert told is reason


def test_a_message_that_is_too_large_is_over_a_quota() -> None:
    assert publish_refusal(5, 1, ReasonCode.PACKET_TOO_LARGE) == (ReasonCode.QUOTA_EXCEEDED, False)
    assert publish_refusal(4, 1, ReasonCode.PACKET_TOO_LARGE) == (ReasonCode.QUOTA_EXCEEDED, True)
    assert publish_refusal(4, 0, ReasonCode.PACKET_TOO_LARGE) == (ReasonCode.QUOTA_EXCEEDED, False)


def test_3_1_1_knows_one_failure_of_a_subscription() -> None:
    codes = [ReasonCode.GRANTED_QOS_2, ReasonCode.NOT_AUTHORIZED, ReasonCode.QUOTA_EXCEEDED, ReasonCode.SUCCESS]
    assert suback_codes(5, codes) == codes
    assert suback_codes(4, codes) == [codes[0], ReasonCode.UNSPECIFIED_ERROR, ReasonCode.UNSPECIFIED_ERROR, codes[3]]
