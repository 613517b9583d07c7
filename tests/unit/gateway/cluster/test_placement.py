"""Where shards belong: balanced, few moves, standbys in other zones (G2, G14)."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cluster.placement import BUSY_CPU, Candidate, moves, ranking, standbys

names = st.lists(st.sampled_from([f"g{n}" for n in range(9)]), min_size=1, max_size=6, unique=True)
shards = st.sampled_from([1, 16, 48])


def settled(owners: dict[int, str], members: list[Candidate], most: int = 1) -> tuple[dict[int, str], int]:
    """Makes all moves; the owners then, and how many moves there were."""
    owners, count = dict(owners), 0
    while found := moves(owners, members, most):
        assert len(found) <= most
        for move in found:
            assert owners[move.shard] == move.owner != move.to
            owners[move.shard] = move.to
            count += 1
        assert count <= 10 * len(owners), "it comes to an end"
    return owners, count


def first(count: int, members: list[Candidate]) -> dict[int, str]:
    return {shard: ranking(shard, members)[0].name for shard in range(count)}


@settings(deadline=None)
@given(names, shards)
def test_shards_are_balanced(among: list[str], count: int) -> None:
    members = [Candidate(name) for name in among]
    owners, _ = settled(first(count, members), members)
    load = Counter(owners.values())
    assert max(load.values()) - min(load[name] for name in among) <= max(1, 0.2 * count / len(among) + 1)


@settings(deadline=None)
@given(names, shards, st.integers(1, 4))
def test_a_member_that_joins_gets_its_share_and_nothing_else_moves(among: list[str], count: int, most: int) -> None:
    members = [Candidate(name) for name in among]
    owners, _ = settled(first(count, members), members)
    after, count_moves = settled(owners, [*members, Candidate("new")], most)
    assert all(after[shard] in (owners[shard], "new") for shard in owners)
    assert count_moves <= -(-count // (len(among) + 1))


@settings(deadline=None)
@given(names.filter(lambda among: len(among) > 1), shards)
def test_a_member_that_is_lost_costs_only_its_own_shards(among: list[str], count: int) -> None:
    """Whoever ranks first among those left claims each; then at most as many move as it had."""
    members = [Candidate(name) for name in among]
    owners, _ = settled(first(count, members), members)
    left = members[1:]
    lost = [shard for shard, owner in owners.items() if owner == among[0]]
    claimed = owners | {shard: ranking(shard, left)[0].name for shard in lost}
    _, count_moves = settled(claimed, left)
    assert count_moves <= len(lost)


@settings(deadline=None)
@given(names, st.integers(0, 500))
def test_a_ranking_does_not_depend_on_who_else_is_there(among: list[str], shard: int) -> None:
    members = [Candidate(name) for name in among]
    order = [member.name for member in ranking(shard, members)]
    assert sorted(order) == sorted(among)
    assert [member.name for member in ranking(shard, members[1:])] == [name for name in order if name != among[0]]


def test_ranks_follow_weights() -> None:
    members = [Candidate("a", weight=3.0), Candidate("b")]
    firsts = Counter(ranking(shard, members)[0].name for shard in range(4_000))
    assert 0.72 < firsts["a"] / 4_000 < 0.78
    owners, _ = settled(dict.fromkeys(range(16), "b"), members)
    assert 11 <= Counter(owners.values())["a"] <= 13


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("xyz")), min_size=1, unique_by=lambda m: m[0]),
       st.integers(0, 99), st.integers(1, 3))  # fmt: skip
def test_a_standby_is_never_the_owner_and_in_another_zone_if_there_is_one(
    among: list[tuple[str, str]], shard: int, count: int
) -> None:
    """Q3: the gateways that a message is stored at do not fail together."""
    members = [Candidate(*each) for each in among]
    owner, zone = among[0]
    found = standbys(shard, owner, members, count)
    assert owner not in found
    assert len(found) == len(set(found)) == min(count, len(members) - 1)
    elsewhere = sum(other != zone for _, other in among)
    assert sum(dict(among)[name] != zone for name in found) == min(count, elsewhere)


def test_small_differences_and_busy_members_move_nothing() -> None:
    members = [Candidate("a"), Candidate("b")]
    owners = {shard: "ab"[shard % 2] for shard in range(16)}
    loads = {shard: 1.08 if shard % 2 else 1.0 for shard in owners}
    assert moves(owners, members, 9, loads) == []
    busy = [Candidate("a"), Candidate("b", cpu=BUSY_CPU + 0.1)]
    assert moves(dict.fromkeys(range(8), "a"), busy, 9) == []
    assert moves({}, [], 1) == moves({0: "gone"}, members, 1) == []


def test_one_heavy_shard_is_not_passed_to_and_fro() -> None:
    loads = {0: 100.0, 1: 1.0, 2: 1.0}
    assert moves({0: "a", 1: "b", 2: "b"}, [Candidate("a"), Candidate("b")], 3, loads) == []
