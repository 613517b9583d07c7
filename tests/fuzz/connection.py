"""Fuzz target: the server's side of a connection, mqtt.server_connection (G11), against the promises of its docstring.

A program (see programs.py) feeds it bytes, answers its CONNECT, lets time pass, sends to the client and ends it.
What must hold:

* `receive`, `tick` and `eof` never raise; the first event is Connect or Closed, and none follows Closed;
* nothing between Connect and its answer, but Closed; what was held back comes from `accept`;
* only packets that a client may send are events; no topic alias is left in them, and no topic is empty;
* no more QoS 1 and 2 messages are unanswered than was announced, on 5.0;
* what goes out is what a client of that version can decode: CONNACK first, and nothing after the end;
* a will is due only if CONNECT had one and was accepted;
* the same bytes cut in another way give the same events and the same answers.
"""

from mqtt.codes import VERSION_5, ReasonCode
from mqtt.decode import Decoder
from mqtt.limits import ConnectionLimits
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqtt.server_connection import ServerConnection
from mqtt.server_events import Closed, Event
from mqtt.server_state import State
from tests.fuzz.programs import Kind, Step, parse

PACKET_BYTES = 4_096
HELD_BYTES = 256

_FROM_CLIENT = (Connect, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe, Disconnect, Closed)
_TO_CLIENT = (Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Pingresp, Disconnect)
_REASONS = tuple(ReasonCode)
_FAILURES = tuple(reason for reason in ReasonCode if reason >= ReasonCode.UNSPECIFIED_ERROR)
_SECONDS = (0.0, 0.5, 1.0, 9.99, 10.0, 15.0, 100.0, 100_000.0)
_DETAIL = {"reason_string": "because", "user_property": [("a", "b")]}
_SENT: tuple[Packet, ...] = (
    Publish("a/b", b"x", 0),
    Publish("a/b", b"x" * 50, 1, packet_id=7),
    Publish("a", b"", 2, packet_id=8, properties={"subscription_identifier": [1]}),
    Puback(1),
    Puback(1, ReasonCode.QUOTA_EXCEEDED, _DETAIL),
    Pubrec(2),
    Pubrec(2, ReasonCode.UNSPECIFIED_ERROR, _DETAIL),
    Pubrel(3),
    Pubcomp(2),
    Pubcomp(2, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, _DETAIL),
    Suback(4, [ReasonCode.GRANTED_QOS_1, ReasonCode.NOT_AUTHORIZED], _DETAIL),
    Unsuback(5, [ReasonCode.SUCCESS]),
)


def limits_of(options: int) -> ConnectionLimits:
    """Small limits, so that they are met."""
    return ConnectionLimits(
        max_packet_size=PACKET_BYTES,
        receive_maximum=(1, 2, 5, 65_535)[options & 3],
        topic_alias_maximum=(0, 1, 3, 100)[options >> 2 & 3],
        keep_alive_max_s=(0, 10)[options >> 4 & 1],
        connect_timeout_s=10.0,
        held_bytes_max=HELD_BYTES,
    )


class _Run:
    """One connection under one program; `step_bytes` is how what is fed is cut, 0 for not at all."""

    def __init__(self, options: int, step_bytes: int) -> None:
        self.limits = limits_of(options)
        self.core = ServerConnection(self.limits, 0.0)
        self.events: list[Event] = []
        self.sent = b""
        self._now = 0.0
        self._step_bytes = step_bytes
        self._unanswered = 0

    def play(self, steps: list[Step]) -> None:
        for step in steps:
            self._play(step)
            self._check_sizes()
            was_closed = self.core.closed is not None
            out = self.core.outgoing()
            self.sent += out
            assert self.core.outgoing() == b"", "outgoing gives the same bytes twice"
            if was_closed:
                break
        if self.core.closed is not None:
            self._check_closed()

    def _play(self, step: Step) -> None:
        core, state = self.core, self.core.state
        match step.kind:
            case Kind.FEED:
                size = self._step_bytes or max(1, len(step.argument))
                for at in range(0, len(step.argument), size):
                    self._take(core.receive(step.argument[at : at + size], self._now))
            case Kind.ACCEPT if state is State.CONNECTING and core.connect is not None:
                present = bool(step.number & 1) and not core.connect.clean_start
                self._unanswered = 0
                self._take(core.accept(self._now, session_present=present, assigned_client_id="assigned"))
            case Kind.TICK:
                self._now += _SECONDS[step.number % len(_SECONDS)]
                self._take(core.tick(self._now))
                deadline = core.deadline()
                assert deadline is None or deadline > self._now, "a deadline is past, and the connection lives"
            case Kind.SEND if state in (State.CONNECTED, State.CLOSED):
                self._send(_SENT[step.number % len(_SENT)])
            case Kind.REFUSE if state is State.CONNECTING:
                self._take([core.refuse(_FAILURES[step.number % len(_FAILURES)])])
            case Kind.DISCONNECT if core.closed is None:
                self._take([core.disconnect(_REASONS[step.number % len(_REASONS)])])
            case Kind.EOF:
                self._take(core.eof())

    def _send(self, packet: Packet) -> None:
        core = self.core
        if isinstance(packet, Publish) and not core.fits(PACKET_BYTES):
            return
        was_open = core.closed is None
        core.send(packet)
        if core.closed is not None:
            if was_open:
                self._take([core.closed])
        elif isinstance(packet, Puback | Pubcomp) or (isinstance(packet, Pubrec) and packet.reason_code >= 0x80):
            self._unanswered = max(0, self._unanswered - 1)

    def _take(self, events: list[Event]) -> None:
        for event in events:
            assert not self.events or not isinstance(self.events[-1], Closed), "an event after Closed"
            assert self.events or isinstance(event, Connect | Closed), "the first event is neither Connect nor Closed"
            assert isinstance(event, _FROM_CLIENT), f"a client cannot send {type(event).__name__}"
            assert not (self.events and isinstance(event, Connect)), "a second Connect"
            if isinstance(event, Publish):
                self._check_publish(event)
            self.events.append(event)

    def _check_publish(self, packet: Publish) -> None:
        assert packet.topic, "a PUBLISH without topic"
        assert "topic_alias" not in (packet.properties or {})
        assert "subscription_identifier" not in (packet.properties or {})
        assert packet.properties is None or packet.properties
        self._unanswered += packet.qos > 0
        if self.core.version == VERSION_5:
            assert self._unanswered <= self.limits.receive_maximum, "more unanswered than announced"

    def _check_sizes(self) -> None:
        core = self.core
        partial = core._decoder._partial
        assert partial is None or len(partial) <= PACKET_BYTES, "more is kept than a packet may have"
        assert len(core._aliases._topics or ()) <= self.limits.topic_alias_maximum, "more aliases than announced"
        assert core.state is State.CONNECTING or not core._held, "packets are held back for nobody"
        if core.closed is None:
            assert sum(map(_size, core._held)) <= HELD_BYTES, "more is held back than the limit"

    def _check_closed(self) -> None:
        core = self.core
        assert core.state is State.CLOSED
        assert self.events, "closed without a word"
        assert self.events[-1] is core.closed, "the last event is not the end"
        assert core.receive(b"\xc0\0", self._now) == core.tick(self._now + 1e9) == core.eof() == []
        assert core.outgoing() == b"", "bytes after the end"
        closed = core.closed
        assert closed is not None
        connect = core.connect
        if closed.send_will:
            assert connect is not None
            assert connect.will is not None
            assert Connack in {type(packet) for packet in self.received()}, "the will of a client that never came in"
        if closed.clean:
            assert isinstance(self.events[-2], Disconnect)

    def received(self) -> list[Packet]:
        """What the client gets to see; raises if it is not MQTT."""
        if not self.sent:
            return []
        decoder = Decoder(1 << 20, self.core.version)
        packets = decoder.feed(self.sent)
        assert decoder.error is None, decoder.error
        assert decoder._partial is None, "half a packet goes out"
        assert isinstance(packets[0], Connack), "the first answer is not CONNACK"
        for packet in packets:
            assert isinstance(packet, _TO_CLIENT), f"a server cannot send {type(packet).__name__}"
            assert self.core.version == VERSION_5 or not isinstance(packet, Disconnect)
        ends = [at for at, p in enumerate(packets) if isinstance(p, Disconnect) or (isinstance(p, Connack) and _no(p))]
        assert not ends or ends == [len(packets) - 1], "packets after the last"
        return packets


def _no(packet: Connack) -> bool:
    return bool(packet.reason_code)


def _size(packet: Packet) -> int:
    """Bytes that a packet held back has at least."""
    return 2 + len(packet.payload) if isinstance(packet, Publish) else 2


def run(data: bytes) -> None:
    """One execution."""
    options, steps = parse(data)
    whole = _Run(options[0], 0)
    whole.play(steps)
    whole.received()
    cut = _Run(options[0], 1 + options[1] % 40)
    cut.play(steps)
    assert cut.events == whole.events, "the cut changes the events"
    assert cut.sent == whole.sent, "the cut changes the answers"
