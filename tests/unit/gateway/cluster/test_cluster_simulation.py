"""Several gateways over one log, with faults: who owns what, and what becomes of messages (G4, G6, G7, Q6, Q7, R6, R8).

Half of the runs have share groups, whose members are clients of any shard.

A run that fails names its seed: `PYTHONPATH=. python -m tests.unit.gateway.cluster.sim SEED` repeats it.
"""

import pytest

from tests.draw import SOAK, generator, times
from tests.unit.gateway.cluster.sim import runs
from tests.unit.gateway.cluster.sim.safeguard import Safeguard, fails
from tests.unit.gateway.cluster.sim.safeguards import SAFEGUARDS
from tests.unit.gateway.cluster.sim.share_safeguards import SHARE_SAFEGUARDS
from tests.unit.gateway.cluster.sim.world import Violation

PARTS = 10
RUNS = times(300, 10_000)


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_messages_and_owners_are_right(part: int) -> None:
    """At any offset all agree on each shard's owner, each epoch has one, what was acknowledged is delivered, in order,
    at QoS 2 once, and every shard is served again after the last fault."""
    draw = generator(f"cluster {part}")
    for _ in range(-(-RUNS // PARTS)):
        runs.run(draw.randrange(2 * runs.GROUPS_FROM))


@pytest.mark.parametrize("safeguard", [*SAFEGUARDS, *SHARE_SAFEGUARDS], ids=lambda safeguard: safeguard.rule)
def test_without_any_one_safeguard_something_breaks(safeguard: Safeguard) -> None:
    """Each with a seed that is known to fail without it, and only then."""
    runs.run(safeguard.seed)
    assert fails(safeguard, safeguard.seed)


@pytest.mark.parametrize("seed", [4, runs.GROUPS_FROM + 4])
def test_a_run_is_repeatable(seed: int) -> None:
    def trace(seed: int) -> list[tuple[float, bytes]]:
        one = runs.make(seed)
        one.run()
        one.close()
        return [(entry.at, entry.key) for tp in sorted(one.world.log) for entry in one.world.log[tp] if entry]

    assert trace(seed) == trace(seed) != trace(seed + 1)


def test_a_failure_names_its_seed() -> None:
    with SAFEGUARDS[0].off(), pytest.raises(Violation, match=f"seed {SAFEGUARDS[0].seed}, at"):
        runs.run(SAFEGUARDS[0].seed)


def test_a_soak_runs_more() -> None:
    assert RUNS >= 10_000 if SOAK else RUNS <= 300
