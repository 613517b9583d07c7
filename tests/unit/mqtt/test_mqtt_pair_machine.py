"""Client and server core against each other: any chunks, lost connections at any byte, crashes of the application.

What must hold once everything has settled: QoS 1 at least once, QoS 2 exactly once and in order, both ways; nothing
acknowledged is lost; neither side ever breaks the protocol (the cores and :class:`ServerSession` check each other).
"""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mqtt.client_limits import ClientLimits
from mqtt.client_state import State
from mqtt.limits import ConnectionLimits
from tests.draw import examples
from tests.unit.mqtt.connection_pair import ConnectionPair

several = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3)
mostly = st.sampled_from([True, True, True, False])
chunk = st.sampled_from([1, 3, 5, 30, 1_000, 1_000])


class PairMachine(RuleBasedStateMachine):
    """The session is never lost on purpose: what is then promised is in `test_mqtt_client_session`."""

    pair: ConnectionPair

    @initialize(
        version=st.sampled_from([4, 5]),
        server_window=st.integers(1, 4),
        client_window=st.integers(1, 4),
        aliases=st.sampled_from([0, 0, 1, 2]),
    )
    def begin(self, version: int, server_window: int, client_window: int, aliases: int) -> None:
        limits = ConnectionLimits(receive_maximum=server_window, topic_alias_maximum=2)
        client_limits = ClientLimits(topic_aliases_max=aliases, in_flight_max=3 if version == 4 else None)
        asked = {"receive_maximum": client_window, "topic_alias_maximum": 2}
        self.pair = ConnectionPair(version, limits=limits, client_limits=client_limits, properties=asked)
        self.sent_by_server: list[tuple[bytes, int]] = []
        self.count = 0
        self.pair.connected()

    def _payload(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def _send(self, is_sent: bool) -> None:
        """The application writes down its state and sends, or does not get so far yet."""
        if is_sent and self.pair.is_open:
            self.pair.flush()

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(several=several, topic=st.sampled_from(["a", "b/c", "d"]), is_sent=mostly)
    def publish(self, several: list[int], topic: str, is_sent: bool) -> None:
        for qos in several:
            self.pair.publish(self._payload(), qos, topic)
        self._send(is_sent)

    @rule(several=several)
    def deliver(self, several: list[int]) -> None:
        for qos in several:
            payload = self._payload()
            self.sent_by_server.append((payload, qos))
            self.pair.server.deliver("t", payload, qos)
        self.pair.pull()

    @precondition(lambda self: self.pair.given)
    @rule(data=st.data(), is_sent=mostly)
    def accept(self, data: Any, is_sent: bool) -> None:
        self.pair.accept(data.draw(st.integers(0, len(self.pair.given) - 1)))
        self._send(is_sent)

    @precondition(lambda self: self.pair.is_open and self.pair.to_server)
    @rule(n_bytes=chunk)
    def carry_to_server(self, n_bytes: int) -> None:
        self.pair.carry_to_server(n_bytes)

    @precondition(lambda self: self.pair.is_open and self.pair.to_client)
    @rule(n_bytes=chunk, is_sent=mostly)
    def carry_to_client(self, n_bytes: int, is_sent: bool) -> None:
        self.pair.carry_to_client(n_bytes)
        self._send(is_sent)

    @rule(is_killed=st.booleans())
    def end(self, is_killed: bool) -> None:
        if is_killed:
            self.pair.kill_client()
        else:
            self.pair.lose()

    @precondition(lambda self: not self.pair.is_open)
    @rule(is_whole=st.booleans())
    def connect(self, is_whole: bool) -> None:
        self.pair.connect()
        if is_whole:
            self.pair.exchange()

    @precondition(lambda self: self.pair.is_open)
    @rule()
    def exchange(self) -> None:
        self.pair.exchange()

    @precondition(lambda self: self.pair.is_open)
    @rule(seconds=st.sampled_from([1.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.pair.now += seconds
        assert self.pair.server.connection is not None
        self.pair.take(self.pair.connection.tick(self.pair.now))

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def the_queue_is_accounted_for(self) -> None:
        if not hasattr(self, "pair"):
            return
        waiting = {packet.payload for packet in self.pair.session.unacknowledged}
        assert waiting == set(self.pair.payloads.values())
        stored = {packet.payload for packet in self.pair.server.stored}
        assert stored.issuperset(self.pair.acknowledged), "acknowledged, and not stored"
        assert waiting.isdisjoint(self.pair.acknowledged)

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        pair = self.pair
        if not pair.is_open:
            pair.connect()
        for _ in range(200):
            pair.exchange()
            if not pair.is_open:
                pair.connect()  # the ping of an earlier step was overdue
                continue
            while pair.given:
                pair.accept()
            pair.flush()
            pair.pull()
            if not pair.to_server and not pair.to_client:
                break
        else:
            raise AssertionError("it never settles")
        assert pair.connection.state is State.CONNECTED
        assert not pair.session.unacknowledged
        assert pair.server.is_idle
        assert sorted(pair.acknowledged) == sorted(payload for payload, _ in pair.published)
        _check([(p.payload, p.qos) for p in pair.server.stored], pair.published)
        _check_accepted(pair.accepted, self.sent_by_server)


def _check(got: list[tuple[bytes, int]], sent: list[tuple[bytes, int]]) -> None:
    """Everything that was promised, in order by QoS; a message the application did not remember publishing may be there
    as well only if it never was."""
    assert [item for item in got if item[1] == 2] == [item for item in sent if item[1] == 2]
    assert list(dict.fromkeys(item for item in got if item[1] == 1)) == [item for item in sent if item[1] == 1]


def _check_accepted(accepted: list[tuple[bytes, int]], sent: list[tuple[bytes, int]]) -> None:
    """The application accepts in any order: once at QoS 2, at least once at QoS 1."""
    assert sorted(item for item in accepted if item[1] == 2) == sorted(item for item in sent if item[1] == 2)
    assert {item for item in accepted if item[1] == 1} == {item for item in sent if item[1] == 1}


TestPair = PairMachine.TestCase
TestPair.settings = settings(
    max_examples=examples(150), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
