"""The mesh over small traces: the cores against the oracle, and what a run writes (M6-M12, M14, M18)."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.mesh.limits import MeshLimits
from edge.sim import __main__ as program
from edge.sim import baselines, world
from edge.sim.errors import TraceError
from edge.sim.figures import JSON, PLOT
from edge.sim.scenario import Scenario, Written, draw
from edge.sim.trace import FILES, Trace, load, parse
from tests.draw import examples, generator

NODES = "abcdefgh"
links = st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda link: link[0] != link[1])


@st.composite
def small(draw: st.DrawFn) -> tuple[Trace, Scenario]:
    """A trace of a few steps, some hours apart, and messages that may live for a part of it."""
    at, lines = 0, []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([20, 20, 3_600, 7_200]))
        lines += [f"{at} {one} {other}" for one, other in draw(st.lists(links, min_size=1, max_size=6))]
    trace = parse("small", lines)
    uplinks = draw(st.sets(st.sampled_from(trace.nodes), min_size=1, max_size=2))
    others = [node for node in trace.nodes if node not in uplinks] or list(trace.nodes)
    times = st.sampled_from([step.at for step in trace.steps])
    written = draw(st.lists(st.builds(Written, times, st.sampled_from(others)), min_size=1, max_size=5))
    return trace, Scenario(frozenset(uplinks), tuple(sorted(written)), draw(st.sampled_from([30, 4_000, 86_400])))


@settings(max_examples=examples(60), deadline=None)
@given(small())
def test_unlimited_copies_deliver_what_the_oracle_delivers(case: tuple[Trace, Scenario]) -> None:
    """And as early. The recipient sees each message once."""
    trace, scenario = case
    if any(message.node in scenario.uplinks for message in scenario.messages):
        return
    outcome = world.run(trace, scenario, program.UNLIMITED, patience_s=0)
    assert outcome.delivered == baselines.oracle(trace, scenario).delivered
    assert outcome.given == len(outcome.delivered)


@settings(max_examples=examples(60), deadline=None)
@given(small())
def test_nobody_delivers_more_than_the_oracle(case: tuple[Trace, Scenario]) -> None:
    trace, scenario = case
    best = baselines.oracle(trace, scenario).delivered
    for outcome in (
        baselines.direct(trace, scenario),
        baselines.plain_spray(trace, scenario),
        world.run(trace, scenario, MeshLimits()),
    ):
        assert all(outcome.delivered[number] >= best[number] for number in outcome.delivered)
        assert outcome.given == len(outcome.delivered)


def test_a_mover_carries_messages_between_networks_that_never_touch() -> None:
    """M18: b is with a at first, and with the uplink u hours later; the receipt goes back the same way."""
    trace = parse("mover", ["20 a b", "7600 b u", "9000 a b", "9000 c d"])
    scenario = Scenario(frozenset("u"), (Written(20, "a"), Written(20, "c")), 86_400)
    outcome = world.run(trace, scenario, MeshLimits())
    assert outcome.delivered == {0: 7_600}
    assert (outcome.hits, outcome.given) == (1, 1)
    assert baselines.direct(trace, scenario).delivered == {}


def village(hours: int = 40) -> Trace:
    """Twenty-four people in three groups, some of whom visit another group."""
    draws, lines = generator("village"), []
    for at in range(0, hours * 3_600, 300):
        for _ in range(4):
            group = draws.randrange(3)
            one, other = draws.sample(range(8), 2)
            visits = draws.random() < 0.1
            lines.append(f"{at} {group * 8 + one} {(group * 8 + other + (8 if visits else 0)) % 24}")
    return parse("village", lines)


def test_the_mesh_spares_transmissions_and_hits() -> None:
    """M6, M11, M12: beside plain spray over the same trace; the recipient sees each message once (M14)."""
    trace = village()
    scenario = draw(trace, 1, messages=60)
    mesh, spray = world.run(trace, scenario, MeshLimits()), baselines.plain_spray(trace, scenario)
    assert mesh.delivered
    assert mesh.given_each == 1
    assert mesh.transmissions < spray.transmissions
    assert mesh.hits_each <= spray.hits_each


def test_a_run_is_repeatable() -> None:
    trace = village(30)
    scenario = draw(trace, 3, messages=20)
    assert scenario == draw(trace, 3, messages=20) != draw(trace, 4, messages=20)
    assert world.run(trace, scenario, MeshLimits()) == world.run(trace, scenario, MeshLimits())


def test_a_scenario_follows_its_rule() -> None:
    trace = village(30)
    scenario = draw(trace, 5)
    assert (len(scenario.uplinks), len(scenario.messages)) == (1, 300)
    by_time = {step.at: {node for link in step.links for node in link} for step in trace.steps}
    for message in scenario.messages:
        assert message.node in by_time[message.at] - scenario.uplinks
        assert message.at <= trace.steps[-1].at - scenario.lifetime_s
    with pytest.raises(TraceError, match="too short"):
        draw(village(20), 5)


@pytest.mark.parametrize(
    ("line", "detail"),
    [("20 a", "line 2 of trace x is not `t i j"), ("noon a b", "is not `t i j"), ("20 a a", "meets itself")],
)
def test_a_line_that_is_none_is_named(line: str, detail: str) -> None:
    with pytest.raises(TraceError, match=detail):
        parse("x", ["0 a b MED ADM", line])


def test_a_trace_that_is_missing_or_empty_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TraceError, match="empty"):
        parse("x", ["", " "])
    with pytest.raises(TraceError, match="run `make mesh`"):
        load("hospital", tmp_path)


def test_the_program_writes_table_figures_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{step.at} {one} {other} A B" for step in village(28).steps for one, other in step.links]
    (tmp_path / FILES["hospital"]).write_text("\n".join(lines))
    program.run(["hospital"], tmp_path, 1, tmp_path, messages=20)
    values = json.loads((tmp_path / JSON).read_text())
    names = ("ratio", "tx", "hits", "ratio_vs_spray", "tx_vs_spray", "unlimited_vs_oracle", "recipient_hits")
    assert {f"mesh_hospital_{name}" for name in names} <= values.keys()
    assert values["mesh_hospital_unlimited_vs_oracle"] == 1
    assert (tmp_path / PLOT).stat().st_size > 10_000
    assert "plain binary spray, 8" in capsys.readouterr().out
