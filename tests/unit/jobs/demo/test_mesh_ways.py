"""Which way a message took, read from the agents' logs (M18, M20)."""

from collections.abc import Iterable

from edge.agent.way import Step
from jobs.demo.mesh_ways import LoggedStep, Way, bundle_of, by_message, hops, way_of

MESSAGE, BUNDLE = "a" * 32, "8516cda5-eeb3-8bf5-baf7-8e209d2f6cf6"
Logged = tuple[str, str, str]


def logs(*steps: Logged) -> dict[str, list[Step]]:
    """Steps of one message, a second apart: agent, event, detail."""
    found: dict[str, list[Step]] = {}
    for at_s, (agent, event, detail) in enumerate(steps):
        identifier = MESSAGE if event in ("accepted", "written") else BUNDLE
        found.setdefault(agent, []).append(Step(identifier, float(at_s), "mesh", event, detail))
    return found


def way(recipient: str, *steps: Logged) -> Way | None:
    accepted = ("jfk", "accepted", f"to {recipient}, 40 bytes, as bundle {BUNDLE}")
    return way_of("jfk", recipient, of_message(logs(accepted, *steps)))


def of_message(found: dict[str, list[Step]]) -> Iterable[LoggedStep]:
    return by_message(found)[MESSAGE]


GIVEN_TO_PLANE = [("jfk", "given", "to n1"), ("n1", "carried", "from jfk")]


def test_the_originator_reaches_the_platform_itself() -> None:
    assert way("", ("jfk", "delivered", "says platform as gateway")) == Way(0, ("jfk", "platform"), by_platform=True)


def test_another_airport_brings_it_to_the_platform() -> None:
    """The originator learns of it later, from a receipt."""
    found = way(
        "",
        *GIVEN_TO_PLANE,
        ("bos", "carried", "from n1"),
        ("n1", "given", "to bos"),
        ("bos", "acknowledged", "says platform as gateway"),
        ("jfk", "delivered", "says platform as gateway"),
    )
    assert found == Way(2, ("jfk", "n1", "bos", "platform"), by_platform=True)
    assert found.by_mesh


def test_the_aircraft_lands_where_the_recipient_is() -> None:
    found = way(
        "bos",
        *GIVEN_TO_PLANE,
        ("bos", "received", "from jfk, after 2 links"),
        ("n1", "given", "to bos"),
        ("jfk", "delivered", "says bos as recipient"),
    )
    assert found == Way(2, ("jfk", "n1", "bos"), by_platform=False)


def test_an_agents_message_comes_through_the_platform() -> None:
    direct = way(
        "bos", ("jfk", "delivered", "says platform as gateway"), ("bos", "received", "from jfk, after 2 links")
    )
    assert direct == Way(0, ("jfk", "platform", "bos"), by_platform=True)
    carried = way(
        "bos",
        *GIVEN_TO_PLANE,
        ("atl", "carried", "from n1"),
        ("atl", "delivered", "says platform as gateway"),
        ("bos", "received", "from jfk, after 4 links"),
    )
    assert carried == Way(2, ("jfk", "n1", "atl", "platform", "bos"), by_platform=True)


def test_copies_that_went_elsewhere_are_not_on_the_way() -> None:
    found = way(
        "",
        *GIVEN_TO_PLANE,
        ("jfk", "given", "to n2"),
        ("n2", "carried", "from jfk"),
        ("jfk", "delivered", "says platform as gateway"),
    )
    assert found == Way(0, ("jfk", "platform"), by_platform=True)


def test_a_message_that_has_not_arrived_has_no_way() -> None:
    assert way("bos", *GIVEN_TO_PLANE) is None
    assert way("", *GIVEN_TO_PLANE, ("jfk", "delivered", "says bos as recipient")) is None


def test_steps_of_the_bundle_are_those_of_the_message() -> None:
    found = by_message(logs(("jfk", "accepted", f"to bos, as bundle {BUNDLE}"), ("bos", "written", "")))
    assert list(found) == [MESSAGE]
    assert bundle_of(found[MESSAGE]) == BUNDLE
    assert bundle_of([]) is None


def test_hops_count_only_what_came_by_the_mesh() -> None:
    ways = [Way(links, ("a",), by_platform=True) for links in (0, 2, 2, 4)]
    assert hops(ways) == {2: 2, 4: 1}
