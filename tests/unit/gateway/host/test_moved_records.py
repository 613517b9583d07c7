"""What gateways of a machine say to one another of moved clients: as it was sent, or refused (R5)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.host.moved_records import (
    ClientState,
    Offer,
    Taken,
    decode_client,
    decode_frame,
    encode_client,
    encode_frame,
)
from gateway.shard.in_hand import DeliveryInHand
from gateway.shard.session_state import SessionState
from mqtt.connection_state import ConnectionState, OutboundAliasState
from schemas.errors import RecordError

numbers = st.integers(0, 65_535)
ids = st.integers(1, 65_535)
topics = st.text("abc/", min_size=1, max_size=9)
texts = st.text(max_size=9)
places = st.integers(-1, 1 << 50)

states = st.builds(
    ClientState,
    st.builds(
        ConnectionState,
        st.sampled_from([4, 5]),
        texts,
        numbers,
        st.floats(0, 1e6),
        st.integers(2, 268_435_460),
        st.integers(0, 1 << 32),
        numbers,
        numbers,
        numbers,
        st.dictionaries(ids, topics, max_size=3),
        st.booleans(),
        st.binary(max_size=40),
        st.integers(0, 1 << 32),
        st.booleans(),
        st.lists(st.tuples(texts, texts), max_size=2),
    ),
    st.builds(OutboundAliasState, numbers, st.lists(topics, max_size=3), numbers),
    st.builds(
        SessionState,
        places,
        places,
        ids,
        numbers,
        st.none() | places,
        st.lists(st.builds(DeliveryInHand, ids, st.integers(1, 2), places, places, places), max_size=3),
        st.lists(st.tuples(ids, places, places), max_size=3),
        st.lists(ids, max_size=3),
        st.dictionaries(texts, st.floats(0, 1e12), max_size=2),
    ),
    texts,
    st.floats(0, allow_nan=False),
    texts,
    st.booleans(),
    st.none() | texts,
)


@given(states)
def test_a_state_arrives_as_it_was_sent(state: ClientState) -> None:
    assert decode_client(encode_client(state)) == state


@given(states, st.data())
def test_what_is_cut_or_changed_is_refused_or_a_state(state: ClientState, data: st.DataObject) -> None:
    raw = encode_client(state)
    with pytest.raises(RecordError):
        decode_client(raw[: data.draw(st.integers(0, len(raw) - 1))])
    place = data.draw(st.integers(0, len(raw) - 1))
    changed = raw[:place] + data.draw(st.binary(min_size=1, max_size=3)) + raw[place + 1 :]
    try:
        found = decode_client(changed)
    except RecordError:
        return
    assert isinstance(found, ClientState)


@given(st.builds(Offer, st.integers(0, 99), numbers, numbers, st.lists(st.binary(max_size=9), min_size=1, max_size=64)))
def test_a_frame_arrives_as_it_was_sent(offer: Offer) -> None:
    raw = encode_frame(offer)
    assert decode_frame(raw) == offer
    for length in range(len(raw)):
        with pytest.raises(RecordError):
            decode_frame(raw[:length])
    assert decode_frame(encode_frame(Taken(offer.number, [1, 2]))) == Taken(offer.number, [1, 2])


@pytest.mark.parametrize("raw", [b"", b"\x02" + encode_frame(Taken(1))[1:], b"\x01" + msgspec.msgpack.encode({"a": 1})])
def test_another_version_is_refused(raw: bytes) -> None:
    with pytest.raises(RecordError):
        decode_frame(raw)
    with pytest.raises(RecordError):
        decode_client(raw)
