"""The corpus of each fuzz target: its seeds (seeds.py), and what fuzzing has found beyond them, packed in
`corpus/TARGET.zip`, one entry per input.

An input is worth keeping if it reaches a transition between two bytecodes of `gateway` or `mqtt` that no other reaches.
"""

import hashlib
import io
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gateway
import mqtt
from tests.fuzz.seeds import codec_seeds, program_seeds

PACKS = Path(__file__).parent / "corpus"
SEEDS = {"codec": codec_seeds, "connection": program_seeds, "host": program_seeds}
MEASURED = tuple(str(Path(package.__file__ or "").parent) for package in (gateway, mqtt))

Transition = tuple[CodeType, int, int]


def read(target: str) -> dict[str, bytes]:
    """The inputs of a target by name, seeds first."""
    found = SEEDS[target]()
    if _pack(target).exists():
        with zipfile.ZipFile(_pack(target)) as pack:
            found |= {name: pack.read(name) for name in sorted(pack.namelist())}
    return found


def write(target: str, inputs: Iterable[bytes]) -> int:
    """Packs `inputs`, without seeds; the same inputs always make the same file. Returns how many there are."""
    seeds = set(SEEDS[target]().values())
    named = {hashlib.sha1(data).hexdigest(): data for data in inputs if data not in seeds}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as pack:
        for name, data in sorted(named.items()):
            pack.writestr(zipfile.ZipInfo(name), data)  # dated 1980
    _pack(target).unlink(missing_ok=True)
    if named:
        PACKS.mkdir(exist_ok=True)
        _pack(target).write_bytes(packed.getvalue())
    return len(named)


def add(target: str, data: bytes) -> None:
    """Takes one input in, whatever it reaches."""
    write(target, [*read(target).values(), data])


def unpack(target: str, directory: Path) -> None:
    """Writes each input to a file of its own, as libFuzzer wants them."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in read(target).items():
        (directory / name).write_bytes(data)


def minimised(target: str, run: Callable[[bytes], None], found: Iterable[bytes] = ()) -> list[bytes]:
    """Those inputs of the corpus, and of `found`, that reach together what all of them reach; of two that reach the
    same the shorter one is kept, and seeds before all others."""
    seeds = list(SEEDS[target]().values())
    others = {*read(target).values(), *found} - set(seeds)
    reached: dict[bytes, set[Transition]] = {}
    known: set[Transition] = set()
    for data in [*seeds, *sorted(others, key=lambda data: (len(data), data))]:
        new = transitions(run, data)
        if data in seeds or not new <= known:
            reached[data] = new
            known |= new
    return _without_superfluous(reached, seeds)


def transitions(run: Callable[[bytes], None], data: bytes) -> set[Transition]:
    """Pairs of bytecodes of `gateway` and `mqtt` that run one after the other."""
    found: set[Transition] = set()

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(MEASURED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        last = -1

        def step(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            if event == "opcode":
                found.add((frame.f_code, last, frame.f_lasti))
                last = frame.f_lasti
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        run(data)
    finally:
        sys.settrace(before)
    return found


def _without_superfluous(reached: Mapping[bytes, set[Transition]], seeds: list[bytes]) -> list[bytes]:
    """What a shorter input reached first may be reached by longer ones, too, that are kept anyway."""
    times = Counter(transition for found in reached.values() for transition in found)
    kept = []
    for data, found in reached.items():
        if data not in seeds and all(times[transition] > 1 for transition in found):
            times.subtract(found)
        else:
            kept.append(data)
    return kept


def _pack(target: str) -> Path:
    return PACKS / f"{target}.zip"
