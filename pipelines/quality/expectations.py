"""What must hold of the ledger: each expectation once, by name, with the sentence that people read.

:mod:`pipelines.quality.findings` finds violations; the quality job has Great Expectations judge them.
"""

from typing import NamedTuple

from schemas.feed_tables import FEED_COPIES
from schemas.table import Table
from schemas.tables import COMPLETIONS, HISTORY, INSTRUCTIONS, MESSAGES, OUTCOMES, PRESENCE_HISTORY

ROUTING_LATENCY = "routing_latency"
DELIVERY_LATENCY = "delivery_latency"


class Expectation(NamedTuple):
    """`name` is also the name of the query that finds violations, `suite` the family, `table` the table whose rows are
    judged."""

    name: str
    suite: str
    table: Table
    sentence: str


def of_uniqueness(table: Table) -> Expectation:
    """Each row exists once."""
    key = ", ".join(table.key)
    return Expectation(
        f"unique_{table.name}", "ids are unique", table, f"No two rows of {table.name} have the same {key}"
    )


def of_required(table: Table) -> Expectation:
    """Columns that are declared as required are not null."""
    sentence = f"No required column of {table.name} is null"
    return Expectation(f"required_{table.name}", "required columns are filled", table, sentence)


_EXIST = "every message exists"
_TIMES = "times are in order"
_LATENCY = "latency is within bounds"

LOCAL = (
    Expectation("time_messages", _TIMES, MESSAGES, "A message is accepted before it is appended"),
    Expectation("time_instructions", _TIMES, INSTRUCTIONS, "A message is appended before its instructions"),
    Expectation(
        "time_outcomes",
        _TIMES,
        OUTCOMES,
        "A message is appended before its outcomes, and an outcome happens before it is appended",
    ),
    Expectation(
        "time_completions",
        _TIMES,
        COMPLETIONS,
        "A message is appended before it is completed, and completed before its completion is appended",
    ),
    Expectation("time_presence_history", _TIMES, PRESENCE_HISTORY, "A presence event happens before it is appended"),
)
"""Can be decided by looking at a single row."""

ACROSS = (
    Expectation(
        "unique_message_id",
        "ids are unique",
        MESSAGES,
        "No two messages have the same id, unless it is derived (version 8) and was sent again",
    ),
    Expectation("message_of_instruction", _EXIST, INSTRUCTIONS, "Every instruction's message is in messages"),
    Expectation("message_of_outcome", _EXIST, OUTCOMES, "Every outcome's message is in messages"),
    Expectation("message_of_completion", _EXIST, COMPLETIONS, "Every completion's message is in messages"),
    Expectation(
        "instruction_of_outcome", "every instruction exists", OUTCOMES, "Every outcome's instruction is in instructions"
    ),
    Expectation(
        "touches",
        "every instruction exists",
        COMPLETIONS,
        "A completed message has as many instructions as its completion counts",
    ),
    Expectation(
        "completion_last",
        "completion comes last",
        OUTCOMES,
        "No outcome of an instruction is appended after its message is complete",
    ),
    Expectation(
        "outcome_of_completion",
        "completion comes last",
        COMPLETIONS,
        "When a message is completed, each of its shards has an outcome of it",
    ),
    Expectation(
        "time_of_message", _TIMES, INSTRUCTIONS, "Instructions and messages agree on when the message was appended"
    ),
    Expectation("time_of_instruction", _TIMES, OUTCOMES, "An instruction is appended before its outcomes"),
    Expectation(
        "progress_of_copy",
        "every copy is counted",
        FEED_COPIES,
        "Every copy of a redundant feed is counted in feed_progress",
    ),
    Expectation("offsets", "no gap in ingress", MESSAGES, "Every offset of ingress is in messages or in quarantine"),
)
"""Need other rows to decide."""

LATENCIES = (
    Expectation(ROUTING_LATENCY, _LATENCY, INSTRUCTIONS, "A message is routed in time"),
    Expectation(DELIVERY_LATENCY, _LATENCY, OUTCOMES, "A message is sent in time at QoS 0"),
)

EXPECTATIONS = (
    *(of_uniqueness(table) for table in HISTORY),
    *(of_required(table) for table in HISTORY),
    *ACROSS,
    *LOCAL,
    *LATENCIES,
)

SUITES = tuple(dict.fromkeys(expectation.suite for expectation in EXPECTATIONS))
