"""Programs for the targets that are more than one stream: what happens to a connection, step by step, as bytes.

Two bytes of options, then steps: a byte whose value modulo the number of kinds is the :class:`Kind`, and its argument,
which for FEED is a length (two bytes) and the bytes, and for the others one byte. Any bytes are a program.
"""

import random
from enum import IntEnum
from typing import NamedTuple

from tests.fuzz.mutate import Blind, mutate_stream

OPTION_BYTES = 2
MOST_STEPS = 60


class Kind(IntEnum):
    """What a step does."""

    FEED = 0
    ACCEPT = 1
    TICK = 2
    SEND = 3
    REFUSE = 4
    DISCONNECT = 5
    EOF = 6


class Step(NamedTuple):
    kind: Kind
    argument: bytes

    @property
    def number(self) -> int:
        return self.argument[0] if self.argument else 0


def parse(data: bytes) -> tuple[bytes, list[Step]]:
    """Options and steps."""
    options = (data[:OPTION_BYTES] + bytes(OPTION_BYTES))[:OPTION_BYTES]
    steps, at = [], OPTION_BYTES
    while at < len(data) and len(steps) < MOST_STEPS:
        kind = Kind(data[at] % len(Kind))
        at += 1
        length = 1
        if kind is Kind.FEED:
            length = int.from_bytes(data[at : at + 2], "big")
            at += 2
        steps.append(Step(kind, data[at : at + length]))
        at += length
    return options, steps


def write(options: bytes, steps: list[Step]) -> bytes:
    """The program's bytes."""
    parts = [options]
    for kind, argument in steps:
        length = len(argument[:65_535]).to_bytes(2, "big") if kind is Kind.FEED else b""
        parts.append(bytes((kind,)) + length + argument[:65_535])
    return b"".join(parts)


def mutate_program(data: bytes, rng: random.Random, blind: Blind, seeds: list[tuple[int, bytes]]) -> bytes:
    """A child of a program: most often what is fed changes, else the order of the steps, or the options."""
    options, steps = parse(data)
    choice = rng.randrange(10)
    fed = [at for at, step in enumerate(steps) if step.kind is Kind.FEED]
    if choice < 6 and fed:
        at = rng.choice(fed)
        steps[at] = Step(Kind.FEED, mutate_stream(steps[at].argument, rng, blind, seeds))
    elif choice == 6 or not steps:
        kind = Kind(rng.choice((0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 4, 5, 6)))
        argument = mutate_stream(b"", rng, blind, seeds) if kind is Kind.FEED else bytes((rng.randrange(256),))
        steps.insert(rng.randint(0, len(steps)), Step(kind, argument))
    elif choice == 7:
        del steps[rng.randrange(len(steps))]
    elif choice == 8:
        one, other = rng.randrange(len(steps)), rng.randrange(len(steps))
        steps[one], steps[other] = steps[other], steps[one]
    else:
        options = bytes((rng.randrange(256), rng.randrange(256)))
    return write(options, steps)
