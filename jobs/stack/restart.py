"""A restart of one part as another version: its process stops, then a new one starts."""

from dataclasses import dataclass

from jobs.stack.part import Part


@dataclass
class Restart:
    """`earlier` is the part as it was before; it runs again if the new version dies before it is ready. `error` says
    why, once the restart `is_over`."""

    earlier: Part
    is_over: bool = False
    error: str | None = None

    def end(self, error: str | None = None) -> None:
        self.is_over, self.error = True, error
