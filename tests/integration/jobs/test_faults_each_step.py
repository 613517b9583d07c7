"""Every query of the ledger killed after each of its steps, and begun again without its checkpoint: the tables are
those of a ledger that nothing happened to (R3, R4, R7, R12, M9, S5).

A kill is what it leaves behind: a batch that is planned (`offsets/N`), with all, some or none of its effects, the state
of the batch or not, and no `commits/N`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import local
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from pipelines import sinks
from pipelines.kafka.writer import KafkaWriter
from pipelines.sinks import RoutesTable
from pipelines.storage.table_files import TableFiles
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.jobs.ledger_harness import QUERIES, Found, LedgerHarness

STEPS = {"after read": 0, "after the first effect": 1, "after the second effect": 2, "after all effects": 99}
"""How many effects a batch has had when it is killed; a run draws two of them."""

CLOCKS_S = (0.0, -3600.0, 3600.0, 0.0)
"""Meanwhile the clock of the ledger's machine jumps."""


class Killed(Exception):
    """As if the process had ended here."""


class Kills:
    """Ends each query's batch `number`, which it gives its own callback, after so many effects."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.number = -1
        self.effects = 0
        self._here = local()
        self._of_sink(patch)
        for kind, name in (
            (TableFiles, "write"),
            (TableFiles, "keep"),
            (TableFiles, "commit"),
            (TableFiles, "append"),
            (KafkaWriter, "write"),
            (RoutesTable, "write"),
        ):
            patch.setattr(kind, name, self._effect(getattr(kind, name)))
        quarantine_to = sinks.quarantine_to
        patch.setattr(sinks, "quarantine_to", lambda *to: self._effect(quarantine_to(*to)))

    def _of_sink(self, patch: pytest.MonkeyPatch) -> None:
        foreach_batch = DataStreamWriter.foreachBatch

        def in_batches(writer: DataStreamWriter, write: Callable[[DataFrame, int], None]) -> DataStreamWriter:
            def killed(batch: DataFrame, number: int) -> None:
                self._here.left = self.effects if number == self.number else None
                self._after()
                write(batch, number)
                if self._here.left is not None:
                    raise Killed("after all effects")

            return foreach_batch(writer, killed)

        patch.setattr(DataStreamWriter, "foreachBatch", in_batches)

    def _effect(self, effect: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            given = effect(*arguments, **named)
            if self._here.left is not None:
                self._here.left -= 1
                self._after()
            return given

        return counted

    def _after(self) -> None:
        if self._here.left == 0:
            raise Killed("after an effect")


@pytest.fixture(scope="module")
def harness(spark: SparkSession, broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> LedgerHarness:
    return LedgerHarness(spark, broker, "tfaults.", tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def killed(harness: LedgerHarness) -> tuple[Found, Found]:
    """What is expected and what is found after all queries were killed at each step, each in a batch of its own."""
    with pytest.MonkeyPatch.context() as patch:
        kills = Kills(patch)
        for number, step in enumerate(draw.some(list(STEPS), 1, "steps of the ledger")):
            kills.number, kills.effects = number, STEPS[step]
            harness.clock_s = CLOCKS_S[(number + draw.SEED) % 4]
            harness.say_round()
            failed = harness.run()
            assert failed.keys() == set(QUERIES), f"{step}: not killed {set(QUERIES) - failed.keys()}"
            assert all("Killed: after" in failed[name] for name in QUERIES), failed
    harness.say_round()
    assert harness.run() == {}
    return harness.expected(), harness.found()


@pytest.fixture(scope="module")
def begun_anew(harness: LedgerHarness, killed: tuple[Found, Found]) -> tuple[Found, Found]:
    """The same after all checkpoints are lost."""
    tables = Path(harness.settings.tables)
    for checkpoints in (tables / "_checkpoints", *tables.glob("*/_checkpoints")):
        shutil.rmtree(checkpoints)
    harness.say_round()
    assert harness.run() == {}
    return harness.expected(), harness.found()


def test_every_query_has_a_case(harness: LedgerHarness) -> None:
    assert sorted(harness.starts()) == sorted(QUERIES) == sorted(harness.expected())


@pytest.mark.parametrize("query", QUERIES)
def test_killed_after_each_step_nothing_is_lost_or_twice(killed: tuple[Found, Found], query: str) -> None:
    """R3, R4, R7, R12, M9, S5: for each query and step; records of a later version are in quarantine once."""
    expected, found = killed
    assert found[query] == expected[query]


@pytest.mark.parametrize("query", QUERIES)
def test_without_its_checkpoint_a_query_goes_on_where_its_table_ends(
    begun_anew: tuple[Found, Found], query: str
) -> None:
    """Also those with a state: it is rebuilt from the topic, and from what was told; nobody is told anything twice."""
    expected, found = begun_anew
    assert found[query] == expected[query]


def test_presence_messages_outlive_a_clock_that_jumps(harness: LedgerHarness, begun_anew: tuple[Found, Found]) -> None:
    """R12: they expire an hour after they were appended, whatever the clock of the ledger's machine says."""
    lives = harness.rows(
        "SELECT (epoch_us(expires) - epoch_us(appended)) / 1e6 FROM messages WHERE source = '$presence'"
    )
    assert lives
    longest_s = harness.settings.presence.message_expiry_s
    assert all(seconds > longest_s - 600 for (seconds,) in lives), lives


def test_a_later_version_is_named_in_quarantine(harness: LedgerHarness, begun_anew: tuple[Found, Found]) -> None:
    """Whoever reads the reason knows what to upgrade."""
    reasons = dict(harness.rows("SELECT topic, min(reason) FROM quarantine WHERE topic <> 'elsewhere' GROUP BY 1"))
    other = {topic: reason for topic, reason in reasons.items() if "version 2" not in reason}
    assert other.keys() == {harness.topics.egress}, "an instruction has no version of its own but the message's"
    assert "header instr '2' is malformed" in other[harness.topics.egress]
