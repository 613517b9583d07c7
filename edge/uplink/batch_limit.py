"""How much goes into one request, so that it takes about as long as wanted on this bearer. Pure.

On a fast link 500 bundles are one request; on a slow one a request must be small, or it runs into its time limit again
and again, and claims run out. Additive increase would take minutes, so both ways are by a factor.
"""

from dataclasses import dataclass

from schemas.mesh_api import BUNDLES_MAX

FAST_S = 1.0
SLOW_S = 5.0


@dataclass(slots=True)
class BatchLimit:
    """`bundles` and `size`: the most of a request now; a single bundle may be larger. `most_bytes`: of the body."""

    most_bytes: int
    bundles: int = BUNDLES_MAX
    size: int = 0

    def __post_init__(self) -> None:
        self.size = min(self.size or self.most_bytes, self.most_bytes)

    def sent(self, took_s: float) -> None:
        """A request has been answered."""
        if took_s > SLOW_S:
            self.size = max(1, self.size // 2)
        elif took_s < FAST_S:
            self.size = min(self.most_bytes, self.size * 2)
        self.bundles = min(BUNDLES_MAX, self.bundles * 2)

    def failed(self, bundles: int, size: int) -> None:
        """A request with so many bundles and bytes was not answered, or its contents were refused as a whole."""
        self.bundles = max(1, bundles // 2)
        self.size = max(1, min(self.size, size // 2))
