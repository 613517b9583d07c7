"""Renews the agent's certificate when half of its lifetime is over, at any gateway that answers (M5)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from edge.client.errors import StoreError
from edge.enrol.enrolment import Post, is_due, renew
from edge.enrol.errors import EnrolmentRefused, GatewayNotReached, IdentityFilesError
from edge.enrol.identity_files import Stored
from edge.reconnect import FullJitter

CHECK_S: Final = 600.0
"""Between two looks at the certificate: clocks may be set."""
REFUSED_S: Final = 3_600.0
"""Until the next attempt after a gateway has refused: an operator may have changed something."""

_log: Final = logging.getLogger("waystation.agent")


class Renewal:
    """`posts`: the gateways, in the order to ask. `use` takes what was stored; if it raises StoreError, it is called
    again later. Read-only: `stored`; `problem`, of the last attempt."""

    def __init__(
        self,
        directory: Path,
        stored: Stored,
        posts: Sequence[Post],
        use: Callable[[Stored], None],
        wall_s: Callable[[], float],
        backoff: FullJitter | None = None,
    ) -> None:
        self._directory, self.stored, self._posts = directory, stored, posts
        self._use, self._wall_s = use, wall_s
        self._backoff = backoff or FullJitter(30.0, REFUSED_S)
        self._failures = 0
        self._is_used = True  # what is stored
        self.problem = ""

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(await self.step())

    async def step(self) -> float:
        """Renews if it is due; how long to wait then, in seconds."""
        if not self._is_used:
            return self._use_stored()
        if not self._posts or not is_due(self.stored.identity.certificate, self._wall_s()):
            return CHECK_S
        problems, is_refused = [], False
        for post in self._posts:
            try:
                self.stored = await renew(self._directory, post, self._wall_s())
            except GatewayNotReached as error:
                problems.append(str(error))
            except EnrolmentRefused as error:  # another gateway may be of the right authority
                problems.append(str(error))
                is_refused = True
            except IdentityFilesError as error:
                self._complain(str(error))
                return REFUSED_S
            else:
                self._failures = 0
                return self._use_stored()
        self._complain("; ".join(problems))
        if is_refused:
            return REFUSED_S
        self._failures += 1
        return self._backoff.delay_s(self._failures - 1)

    def _use_stored(self) -> float:
        try:
            self._use(self.stored)
        except StoreError as error:  # the disk is full, perhaps
            self._is_used = False
            self._complain(str(error))
        else:
            self._is_used, self.problem = True, ""
            _log.info("the certificate of the mesh was renewed")
        return CHECK_S

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            _log.warning("the certificate of the mesh is not renewed: %s", problem)
        self.problem = problem
