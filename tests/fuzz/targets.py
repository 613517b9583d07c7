"""The fuzz targets by name: what runs one input, what mutates it, where it begins."""

import random
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from tests.fuzz.mutate import Blind, mutate_stream
from tests.fuzz.programs import mutate_program
from tests.fuzz.seeds import PIECES

LARGEST_BYTES = 4_096


class Target(NamedTuple):
    """`module` has `run`; `share` is its part of the executions over all targets."""

    module: str
    share: float
    mutate: Callable[[bytes, random.Random, Blind], bytes]

    @property
    def run(self) -> Callable[[bytes], None]:
        """Runs one input; raises whatever does not hold."""
        found: Callable[[bytes], None] = import_module(self.module).run
        return found


def _codec_child(data: bytes, rng: random.Random, blind: Blind) -> bytes:
    head = (data[:2] + b"\0\0")[:2]
    if rng.random() < 0.1:
        head = bytes((rng.randrange(8), rng.randrange(256)))
    return head + mutate_stream(data[2:], rng, blind, PIECES)


def _program_child(data: bytes, rng: random.Random, blind: Blind) -> bytes:
    return mutate_program(data, rng, blind, PIECES)


TARGETS = {
    "codec": Target("tests.fuzz.codec", 0.7, _codec_child),
    "connection": Target("tests.fuzz.connection", 0.298, _program_child),
    "host": Target("tests.fuzz.host", 0.002, _program_child),
}
