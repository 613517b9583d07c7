"""docs/capacity.md: the examples are what the formulae beside them give, and these are about routers as they are."""

import math
import re
from pathlib import Path

import pytest

from schemas.cluster_settings import router_slots

TEXT = (Path(__file__).parents[3] / "docs" / "capacity.md").read_text()
FORMULAE, _, TABLE = TEXT.partition("## Three examples")
EXAMPLES = {"1,000/s": (1_000, 7), "100,000/s": (100_000, 1), "1,000,000/s": (1_000_000, 1)}
"""By the heading of a column: messages a second, and days that topics and the window last."""
UNITS = {"": 1.0, "MB": 1e6, "GB": 1e9, "TB": 1e12}
REPLICAS = 3

Values = dict[str, float]


def row(beginning: str, text: str = FORMULAE) -> list[str]:
    """The cells of the one line of a table that begins so."""
    [found] = [line for line in text.splitlines() if line.startswith(f"| {beginning}")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def numbers(text: str) -> list[float]:
    """Those in a text, without the commas of thousands."""
    return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*(?:\.\d+)?", text.replace(", ", "; "))]


def evaluated(formula: str, values: Values) -> float:
    """A formula as the manual writes it."""
    python = formula.replace("×", "*").replace("P'", "P_").replace(" µs", "e-6")
    python = re.sub(r"(?<=\d),(?=\d{3}\b)", "", re.sub(r"\bin\b", "in_", python))
    return float(eval(python, {"__builtins__": {}, "max": max}, values))


def formula(beginning: str) -> str:
    found = re.search(r"`([^`]+)`", row(beginning)[1])
    assert found is not None
    return found[1]


def sizes() -> Values:
    """Bytes of records and rows as the manual has them, and the CPU of a message in a gateway with one in flight, s."""
    ingress, egress, progress, completion = numbers(row("on Kafka, a record")[1])[:4]
    [messages] = numbers(row("a row of `messages`")[1])[:1]
    instructions, outcomes, completions = numbers(row("a row of `instructions`")[1])[:3]
    known = re.search(r"`z` = [^|]*?(\d+) bytes", row("state a message")[1])
    assert known is not None
    return {
        "I": ingress,
        "G": egress,
        "P_": progress,
        "K": completion,
        "messages": messages,
        "instructions": instructions,
        "outcomes": outcomes,
        "completions": completions,
        "z": float(known[1]),
        "in_": 40e-6,
        "out": 49e-6,
    }


def example(m: float, days: float, c: float = 4) -> dict[str, float]:
    """The lines of the table of examples by their beginnings, reckoned by the formulae."""
    values = sizes() | {"m": m, "s": 1, "r": 1, "c": c, "W": days, "trigger_s": 10}
    read = re.search(r"`e = ([^`]+)`", TEXT)
    assert read is not None
    values["e"] = evaluated(read[1], values)
    values["P"] = math.ceil(evaluated(formula("`ingress_partitions`"), values))
    values["homes"] = math.ceil(evaluated(formula("homes"), values))
    written = REPLICAS * evaluated(formula("Kafka, bytes written"), values)
    return {
        "`ingress_partitions`": values["P"],
        "`shards`": evaluated(formula("`shards`"), values),
        "each router": evaluated(formula("a router's slots"), values),
        "CPU of the pair, beside": evaluated(formula("CPU of the pair | "), values),
        "records the ledger reads": m * values["e"],
        "ledger | ": evaluated(formula("CPU of the ledger"), values),
        "homes": values["homes"],
        "Kafka writes": written,
        "Kafka's disks": written * 86_400 * days * 1.2,
        "tables, a day": evaluated(formula("tables, disk a day"), values),
        "state of the ledger | ": evaluated(formula("state of the ledger, disk"), values),
        "ledgers, a prefix each": math.ceil(evaluated(formula("ledgers, a prefix each"), values)),
        "`max_offsets_per_trigger`": evaluated(formula("records of a trigger"), values),
    }


@pytest.mark.parametrize("column", EXAMPLES)
def test_the_examples_are_what_the_formulae_give(column: str) -> None:
    at = list(EXAMPLES).index(column) + 1
    for beginning, expected in example(*EXAMPLES[column]).items():
        cell = row(beginning, TABLE)[at]
        unit = next((each for each in UNITS if each and each in cell), "")
        shown = numbers(cell)[0] * UNITS[unit]
        assert shown == pytest.approx(expected, rel=0.02), f"{beginning} at {column}: {cell}"


@pytest.mark.parametrize("column", EXAMPLES)
def test_the_ledger_has_twice_the_cores_that_are_busy(column: str) -> None:
    busy, cores = numbers(row("ledger | ", TABLE)[list(EXAMPLES).index(column) + 1])
    assert cores == pytest.approx(2 * busy, rel=0.02)


@pytest.mark.parametrize(("copies", "standby"), [(4, True), (2, False)])
def test_slots_are_those_that_a_router_asks_for_and_one_for_the_routes(copies: int, standby: bool) -> None:
    reckoned = example(1_000_000, 1, copies)
    assert reckoned["each router"] == router_slots(int(reckoned["`ingress_partitions`"]), standby) + 1
