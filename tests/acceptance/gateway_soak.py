"""Who lives through the crashes of a gateway, what each is owed, and whether each has got it (Q1, G8, G9, R8)."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from mqtt.packets import Will
from tests.faithful_client import FaithfulClient, eventually

RATE = 20.0
SHORT_EXPIRY_S = 2
MARGIN_S = 3.0
RETAINED_TOPICS = 5
FRESH = 3


class Soak:
    """Senders at QoS 1 and 2; receivers that are always there, slow, restless, or mostly away; somebody who subscribes
    and unsubscribes, one who retains and clears, two who leave wills, one whose session soon expires.

    `up_since` gives when the gateway has last become ready, on the loop's clock. While the soak `rests` nobody begins
    anything new.
    """

    def __init__(self, port: Callable[[], int], run: str, rng: random.Random, up_since: Callable[[], float]) -> None:
        self._port, self._run, self._rng, self._up_since = port, run, rng, up_since
        self._root = f"soak-{run}"
        client = self._client
        self.senders = [client("sender-1"), client("sender-2")]
        self.present = client("present")
        self.slow = client("slow", receive_maximum=4, slow_s=0.003)
        self.restless = client("restless")
        self.absent = client("absent")
        self.changer = client("changer")
        self.retainer = client("retainer")
        self.heir = client("heir")
        self.testator = client("testator", will=lambda n: Will(f"{self._root}/w", b"now %d" % n, 2))
        self.patient = client(
            "patient", will=lambda n: Will(f"{self._root}/w", b"later %d" % n, 2, properties={"will_delay_interval": 2})
        )
        self.fleeting = client("fleeting", expiry_s=SHORT_EXPIRY_S)
        self.receivers = [self.present, self.slow, self.restless, self.absent]
        self.levels = [(1, 2), (2,)]
        self.sent: list[list[tuple[bytes, int]]] = [[], []]
        self.fresh: set[bytes] = set()
        self.stale: set[bytes] = set()
        self.retained: dict[str, bytes] = {}
        self.ended_itself: set[int] = set()
        self.checks: Counter[str] = Counter()
        self._may = asyncio.Event()
        self._busy: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def everyone(self) -> list[FaithfulClient]:
        return [
            *(*self.senders, *self.receivers, self.changer, self.retainer),
            *(self.heir, self.testator, self.patient, self.fleeting),
        ]

    def _client(self, name: str, **options: object) -> FaithfulClient:
        return FaithfulClient(self._port, f"{name}-{self._run}", **options)  # type: ignore[arg-type]

    # -- its life ------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        for client in self.everyone:
            await client.come()
        for receiver in self.receivers:
            await receiver.subscribe(f"{self._root}/t/#", 1 if receiver is self.slow else 2)
        await self.heir.subscribe(f"{self._root}/w", 2)
        self._may.set()
        self._tasks = [asyncio.create_task(life) for life in self._lives()]

    def _lives(self) -> list[Coroutine[Any, Any, None]]:
        lives = [self._send(number) for number in range(len(self.senders))]
        lives += [self._roam(), self._stay_away(), self._change(), self._retain()]
        return [*lives, self._leave_wills(), self._be_fleeting()]

    async def rest(self) -> None:
        """Lets everybody finish what they are at, and waits until all that is owed to those present is there."""
        self._may.clear()
        await eventually(self._is_quiet, "all come to rest", 90)
        for sender in self.senders:
            await sender.published()
        for receiver in (self.present, self.slow):
            await eventually(lambda r=receiver: self.missing(r) == set(), f"{receiver.name} has all", 90)  # type: ignore[misc]
        await self._check_retained()
        self.check()

    def go_on(self) -> None:
        self._may.set()

    async def end(self) -> None:
        """All come, get what they are owed, and are content."""
        await self.rest()
        for client in (self.restless, self.absent):
            await client.come()
            await eventually(lambda c=client: self.missing(c) == set(), f"{client.name} has all", 90)  # type: ignore[misc]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.patient.leave()
        last = b"later %d" % self.patient.accepted[-1]
        await eventually(lambda: last in self.heir.payloads, "the delayed will")
        self.check()
        self._check_wills()
        for client in self.everyone:
            await client.leave(goodbye=True)

    def _is_quiet(self) -> bool:
        """Whether nobody is at anything; raises what somebody has failed with."""
        for task in self._tasks:
            if task.done():
                task.result()
        return not self._busy

    async def _turn(self, who: str, low_s: float, high_s: float) -> None:
        """Waits a while, and until the soak does not rest."""
        self._busy.discard(who)
        await asyncio.sleep(self._rng.uniform(low_s, high_s))
        while not self._may.is_set():  # it may be cleared again before whoever waits for it has its turn
            await self._may.wait()
        self._busy.add(who)

    async def _send(self, number: int) -> None:
        sender, sent = self.senders[number], self.sent[number]
        while True:
            await self._turn(f"sender {number}", 0.5 / RATE, 1.5 / RATE)
            if sender.unacknowledged < 100:
                qos = self._rng.choice(self.levels[number])
                payload = b"%d %d" % (number, len(sent))
                sent.append((payload, qos))
                sender.publish(f"{self._root}/t/{len(sent) % 3}", payload, qos)

    async def _roam(self) -> None:
        while True:
            await self._turn("restless", 0.3, 3.0)
            if self._rng.random() < 0.5:
                self.restless.drop()
            else:
                await self.restless.leave(goodbye=self._rng.random() < 0.5)
                await asyncio.sleep(self._rng.uniform(0, 1))
            await self.restless.come()

    async def _stay_away(self) -> None:
        while True:
            await self.absent.leave(goodbye=self._rng.random() < 0.5)
            await self._turn("absent", 10, 25)
            await self.absent.come()
            await eventually(lambda: len(self.missing(self.absent)) < 20, "absent gets what it missed", 90)

    async def _change(self) -> None:
        """What is published after SUBACK comes; what is published after UNSUBACK does not."""
        number = 0
        while True:
            await self._turn("changer", 0.1, 2.0)
            number += 1
            topic = f"{self._root}-x{number % 7}/{number}"
            await self.changer.subscribe(topic, 2)
            owed = {b"x %d %d" % (number, n) for n in range(FRESH)}
            for payload in sorted(owed):
                self.changer.publish(topic, payload, self._rng.choice([1, 2]))
            await eventually(lambda owed=owed: owed <= set(self.changer.payloads), f"{topic} brings all")  # type: ignore[misc]
            self.fresh |= owed
            await self.changer.unsubscribe(topic)
            late = b"x %d late" % number
            self.stale.add(late)
            self.changer.publish(topic, late, 1)
            self.checks["subscriptions"] += 1

    async def _retain(self) -> None:
        number = 0
        while True:
            await self._turn("retainer", 0.05, 0.5)
            number += 1
            topic = f"{self._root}/r/{self._rng.randrange(RETAINED_TOPICS)}"
            payload = b"" if self._rng.random() < 0.3 else b"%b %d" % (topic.encode(), number)
            self.retainer.publish(topic, payload, self._rng.choice([1, 2]), retain=True)
            await self.retainer.published()
            self.retained[topic] = payload

    async def _check_retained(self) -> None:
        """A stranger gets what was last set and acknowledged, and nothing that was cleared."""
        await self.retainer.published()
        self.checks["retained"] += 1
        stranger = self._client(f"stranger-{self.checks['retained']}", expiry_s=0)
        await stranger.come()
        await stranger.subscribe(f"{self._root}/r/#", 1)
        wanted = sorted(payload for payload in self.retained.values() if payload)
        await eventually(lambda: len(stranger.got) >= len(wanted), "all retained messages")
        await stranger.subscribe(f"{self._root}/none", 1)  # its SUBACK comes behind them
        assert sorted(stranger.payloads) == wanted
        await stranger.leave()

    async def _leave_wills(self) -> None:
        """Wills of connections that the gateway's death ends are due as well as of those that break."""
        while True:
            await self._turn("testator", 1, 6)
            if self._rng.random() < 0.5:
                self.testator.drop()
            else:
                self.ended_itself.add(self.testator.connection)
                await self.testator.leave(goodbye=True)
            await self.testator.come()

    async def _be_fleeting(self) -> None:
        """Gone after its time, if the gateway has been there that long; there before."""
        loop = asyncio.get_running_loop()
        while True:
            await self._turn("fleeting", 0.5, 3)
            self.fleeting.may_be_absent = True
            await self.fleeting.leave(goodbye=self._rng.random() < 0.5)
            left = loop.time()
            await asyncio.sleep(self._rng.choice([0.1, SHORT_EXPIRY_S + MARGIN_S + 1]))
            is_over = loop.time() - max(left, self._up_since()) > SHORT_EXPIRY_S + MARGIN_S
            last = self.fleeting.connection
            await self.fleeting.come()
            # If it was killed before CONNACK, what the next connection finds may be the session of that CONNECT.
            if is_over and self.fleeting.connection == last + 1:
                assert not self.fleeting.present, "a session lives longer than its time"
                self.checks["expired"] += 1

    # -- what holds ----------------------------------------------------------------------------------------------------

    def missing(self, receiver: FaithfulClient) -> set[bytes]:
        """What was acknowledged to senders and has not come to the receiver."""
        got = set(receiver.payloads)
        return {payload for sender in self.senders for payload in sender.acknowledged} - got

    def check(self) -> None:
        """What must hold at any moment."""
        for client in self.everyone:
            assert not client.faults, f"{client.name}: {client.faults[:5]}"
            if client is not self.fleeting:
                assert not client.lost_sessions, f"{client.name} has lost its session"
        qos_of = {payload: qos for sent in self.sent for payload, qos in sent}
        repeated = {payload for sender in self.senders for payload in sender.repeated}
        for receiver in self.receivers:
            self._check_receiver(receiver, qos_of, repeated)
        assert not self.stale & set(self.changer.payloads), "came after UNSUBACK"
        self.checks["repeats"] = sum(len(r.got) - len(set(r.payloads)) for r in self.receivers)

    def _check_receiver(self, receiver: FaithfulClient, qos_of: dict[bytes, int], repeated: set[bytes]) -> None:
        seen: set[bytes] = set()
        for got in receiver.got:
            if got.payload in seen:
                assert got.qos == 1, f"{receiver.name} got {got.payload!r} twice at QoS 2"
                assert got.dup or got.payload in repeated, f"{receiver.name} got {got.payload!r} twice without DUP"
            seen.add(got.payload)
        for number in range(len(self.senders)):
            self._check_order(receiver, number, qos_of)
        assert seen <= set(qos_of)

    def _check_order(self, receiver: FaithfulClient, number: int, qos_of: dict[bytes, int]) -> None:
        """First copies come in the order in which they were sent, whatever their QoS."""
        numbers = [int(p.split()[1]) for p in dict.fromkeys(receiver.payloads) if p.startswith(b"%d " % number)]
        assert numbers == sorted(numbers), f"{receiver.name} got sender {number}'s messages out of order"

    def _check_wills(self) -> None:
        """One for each connection that ended without a goodbye, none twice."""
        wills = Counter(self.heir.payloads)
        twice = [will for will, count in wills.items() if count > 1]
        assert not twice, f"wills came twice: {twice}"
        ended = [n for n in self.testator.accepted[:-1] if n not in self.ended_itself]
        missing = [n for n in ended if b"now %d" % n not in wills]
        assert not missing, f"wills of connections {missing} did not come"
        self.checks["wills"] = len(wills)
