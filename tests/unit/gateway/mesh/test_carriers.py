"""One agent at a time carries for a device, and none for ever (M15)."""

from gateway.mesh.carriers import Carriers


def test_the_next_that_asks_is_the_carrier_after_the_first() -> None:
    carriers = Carriers(10.0, 5)
    assert carriers.begin("van", "a", 100.0)
    assert carriers.begin("van", "a", 109.0), "asking again changes nothing"
    assert not carriers.begin("van", "b", 109.0)
    assert carriers.remaining_s("van", "b", 109.0) == 1.0
    assert carriers.begin("van", "b", 110.0)
    assert not carriers.begin("van", "a", 110.0)


def test_what_is_remembered_is_bounded() -> None:
    carriers = Carriers(10.0, 5)
    for number in range(20):
        assert carriers.begin(f"van-{number}", "a", 0.0)
    assert len(carriers) == 5
    assert carriers.begin("van-0", "b", 1.0), "the earliest is forgotten"
    assert not carriers.begin("van-19", "b", 1.0)
    assert carriers.begin("van-1", "b", 10.5)
    assert len(carriers) == 2, "those that are over are forgotten"


def test_without_a_time_everybody_carries() -> None:
    carriers = Carriers(0.0, 5)
    assert carriers.begin("van", "a", 0.0)
    assert carriers.begin("van", "b", 0.0)
    assert not len(carriers)
