"""Progress of the demos while they run: a table that changes on a terminal, otherwise a line now and then."""

from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo

from rich.live import Live
from rich.table import Table

from jobs.demo.flights import HOME_ZONE
from jobs.output import Terminal

REFRESH_S = 0.5
LINE_EVERY_S = 10.0


class Progress:
    """`figures`: what is shown beside the time, by heading; `place`, `zone`: whose time."""

    def __init__(
        self,
        console: Terminal,
        figures: Callable[[], Mapping[str, str]],
        clock: Callable[[], float],
        place: str = "New York",
        zone: tzinfo = HOME_ZONE,
    ) -> None:
        self._figures, self._place, self._zone = figures, place, zone
        self._clock = clock
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._every_s = REFRESH_S if self._live else LINE_EVERY_S
        self._next = clock() + self._every_s
        self.act = ""
        """The current phase, in a few words."""

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def watch(self, at: datetime) -> None:
        """`at` is the simulated time; costs nothing unless an update is due."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + self._every_s
        figures = {self._place: f"{at.astimezone(self._zone):%a %H:%M}", **self._figures()}
        if self._live:
            table = Table(*figures, title=self.act, title_justify="left")
            table.add_row(*figures.values())
            self._live.update(table, refresh=True)
        else:
            self._console.print(f"  {self.act}: " + ", ".join(f"{name} {value}" for name, value in figures.items()))
