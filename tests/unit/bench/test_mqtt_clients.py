"""The clients that load a gateway: what they answer, and what they measure."""

import time
from typing import Any

import pytest

from bench.mqtt_clients import PAYLOAD, Counter, Member, Subscriber
from mqtt.encode import encode_puback, encode_pubcomp, encode_publish, encode_pubrec, encode_pubrel

TOPIC = "bench/share"
ID = 0x6203
"""Its first byte looks like the one of a PUBREL."""


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def member(qos: int) -> tuple[Member, list[float]]:
    took_ms: list[float] = []
    connected = Member("m", TOPIC, qos, took_ms)
    connected.transport = Transport()
    return connected, took_ms


def publish(qos: int, packet_id: int, age_s: float = 0.0) -> bytes:
    sent_ns = time.monotonic_ns() - int(age_s * 1e9)
    payload = sent_ns.to_bytes(Member.STAMP_BYTES) + PAYLOAD[Member.STAMP_BYTES :]
    return encode_publish(TOPIC.encode(), payload, qos, False, False, packet_id, None)


def written(client: Any) -> bytes:
    return bytes(client.transport.written)


def test_a_member_acknowledges_qos_1_and_measures_how_old_a_message_is() -> None:
    client, took_ms = member(1)
    client.data_received(publish(1, 1, age_s=5.0) + publish(1, ID, age_s=7.0))
    assert written(client) == encode_puback(1) + encode_puback(ID)
    assert took_ms == pytest.approx([5000, 7000], abs=1000)


@pytest.mark.parametrize("step", [1, 3, 250, 10_000])
def test_a_member_completes_exchanges_of_qos_2_in_whatever_pieces_they_come(step: int) -> None:
    client, took_ms = member(2)
    data = publish(2, 1) + encode_pubrel(1) + publish(2, ID) + publish(2, 7) + encode_pubrel(ID)
    for begin in range(0, len(data), step):
        client.data_received(data[begin : begin + step])
    expected = [encode_pubrec(1), encode_pubcomp(1), encode_pubrec(ID), encode_pubrec(7), encode_pubcomp(ID)]
    assert written(client) == b"".join(expected)
    assert len(took_ms) == 3


def test_a_subscriber_of_a_share_group_counts_messages_to_the_topic() -> None:
    counter = Counter()
    client = Subscriber("s", TOPIC, counter, f"$share/bench/{TOPIC}")
    client.transport = Transport()
    client.data_received(publish(1, 1) + publish(1, ID)[:-1])
    assert client.topic_filter == f"$share/bench/{TOPIC}"
    assert (counter.got, written(client)) == (1, encode_puback(1))
