"""Replays the corpus of the fuzzer, and holds what hostile input costs to what it weighs (G11)."""

import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import structlog

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Publish, Subscribe, Subscription
from tests.fuzz import codec, connection, corpus, host
from tests.fuzz.mutate import join, mutate_stream, split
from tests.fuzz.programs import Kind, Step, parse, write
from tests.fuzz.seeds import PACKETS, PIECES, codec_seeds, program_seeds
from tests.fuzz.targets import LARGEST_BYTES, TARGETS

CHILDREN = 2_000
CALLS_A_BYTE = 12


@pytest.mark.parametrize("name", ["codec", "connection"])
def test_the_corpus_finds_nothing(name: str) -> None:
    """Every input that once reached something new, or broke something."""
    for of_input, data in corpus.read(name).items():
        assert len(data) <= LARGEST_BYTES, of_input
        try:
            TARGETS[name].run(data)
        except Exception as error:
            raise AssertionError(f"{of_input}: {error}") from error


@pytest.fixture
def quiet(logging_kept: None) -> None:
    """The gateway says nothing about its clients."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.mark.usefixtures("quiet")
def test_the_corpus_of_whole_connections_finds_nothing() -> None:
    """R12: whatever a client does, its connection ends for a listed reason, and the next client is served."""
    for data in corpus.read("host").values():
        host.run(data)


def test_an_input_that_is_added_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, however often it is added; the others stay, and the seeds, which are not packed."""
    monkeypatch.setattr(corpus, "PACKS", tmp_path)
    corpus.add("codec", b"\1\2one")
    corpus.add("codec", b"\1\2two")
    packed = (tmp_path / "codec.zip").read_bytes()
    corpus.add("codec", b"\1\2one")
    assert (tmp_path / "codec.zip").read_bytes() == packed
    assert sorted(corpus.read("codec").values()) == sorted([b"\1\2one", b"\1\2two", *codec_seeds().values()])


def test_an_input_is_kept_if_it_alone_reaches_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "PACKS", tmp_path)
    reserved, again = b"\1\2\x00\x00", b"\1\2\x00\x00\x00"
    kept = corpus.minimised("codec", codec.run, [again, reserved, codec_seeds()["v4-00"]])
    assert kept == [*codec_seeds().values(), reserved]


@pytest.mark.parametrize(("name", "seeds"), [("codec", codec_seeds()), ("connection", program_seeds())])
def test_the_mutator_makes_inputs_that_find_nothing(name: str, seeds: dict[str, bytes]) -> None:
    """What coverage guides in `make fuzz` is left to chance here: the same mutator, without atheris."""
    rng, parents = random.Random(3), list(seeds.values())

    def blind(raw: bytes) -> bytes:
        at = rng.randint(0, len(raw))
        return raw[:at] + rng.randbytes(rng.randrange(3)) + raw[at + rng.randrange(3) :]

    for _ in range(CHILDREN if name == "codec" else CHILDREN // 4):
        child = TARGETS[name].mutate(rng.choice(parents), rng, blind)
        TARGETS[name].run(child)
        if rng.random() < 0.3:
            parents[rng.randrange(len(parents))] = child


def test_streams_and_programs_are_read_as_they_are_written() -> None:
    """Else the mutator would break what it means to keep."""
    for packets in PACKETS.values():
        stream = b"".join(packets)
        assert join(split(stream)) == stream
    steps = [Step(Kind.FEED, b"abc"), Step(Kind.TICK, b"\5"), Step(Kind.EOF, b"\0")]
    assert parse(write(b"\1\2", steps)) == (b"\1\2", steps)
    child = mutate_stream(b"", random.Random(1), bytes, PIECES)
    assert child


BOMBS = {
    "subscriptions": encode(Subscribe(1, [Subscription("a", 0)] * 5_000), 5),
    "levels": encode(Subscribe(1, [Subscription("+/" * 30_000 + "#", 0)]), 5),
    "topic": encode(Publish("/" * 60_000, b""), 5),
    "properties": encode(Publish("a", b"", properties={"user_property": [("", "")] * 4_000}), 5),
    "publishes": encode(Publish("", b"", properties={"topic_alias": 1}), 5) * 3_000,
    "pings": b"\xc0\0" * 10_000,
    "lengths": b"\x30\x80\x80\x01" + bytes(20_000),
    "noise": random.Random(1).randbytes(20_000),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("step", [1, 1_000, 1 << 20])
def test_work_is_bounded_by_the_bytes_that_came(name: str, step: int) -> None:
    """However they are made, and cut: counted in calls of functions, for a machine's speed is no measure."""
    data, decoder = BOMBS[name], Decoder(1 << 20, 5)

    def feed() -> None:
        for at in range(0, len(data), step):
            decoder.feed(data[at : at + step])

    assert _calls(feed) <= CALLS_A_BYTE * len(data) + 100


def _calls(action: Callable[[], None]) -> int:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    except RemoteProtocolError:
        pass
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("size", [0, 1, 100])
def test_an_input_of_any_size_is_an_input(size: int) -> None:
    for module in (codec, connection):
        module.run(bytes(size))
