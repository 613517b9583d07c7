"""Runs of the simulation: a seed says which site it is, and all that happens there."""

from tests.unit.gateway.cluster.sim.share_site import ShareSite
from tests.unit.gateway.cluster.sim.site import Site
from tests.unit.gateway.cluster.sim.world import Violation

GROUPS_FROM = 10_000_000
"""Seeds from here on are of sites with share groups."""


def make(seed: int) -> Site:
    return ShareSite(seed) if seed >= GROUPS_FROM else Site(seed)


def run(seed: int) -> None:
    """One simulated run. Raises Violation, with the seed."""
    site = make(seed)
    try:
        site.run()
    except Violation as error:
        raise Violation(f"seed {seed}, at {site.world.now:.3f} s: {error}") from error
    finally:
        site.close()
