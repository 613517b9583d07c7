"""A gateway's enrolment, wired to devices in memory; time stands still unless it is set."""

from pathlib import Path

import msgspec

from edge.enrol.authority_files import AuthorityFiles, init
from edge.enrol.enrolment import HttpAnswer
from gateway.access.enrolment import Enrolment
from gateway.http.enrolment_handler import EnrolmentHandler
from gateway.http.problems import Problem
from schemas.enrolment import ENROLMENTS_PATH
from schemas.enrolment_settings import EnrolmentSettings
from tests.unit.bundles.keys import NOW_S


class MemoryGateway:
    """`asked`: what it was sent."""

    def __init__(self, directory: Path) -> None:
        self.now_s = float(NOW_S)
        init(directory, "tests", NOW_S - 1_000)
        self.authority = AuthorityFiles(directory, lambda: self.now_s)
        settings = EnrolmentSettings(
            enabled=True, directory=str(directory), certificate_days=7, requests_per_s=0, requests_burst=1
        )
        self.enrolment = Enrolment(settings, lambda: self.now_s)
        self._handler = EnrolmentHandler(self.enrolment, settings, lambda: self.now_s)
        self.asked: list[bytes] = []

    async def post(self, path: str, body: bytes) -> HttpAnswer:
        await self.enrolment.file.refresh()
        self.asked.append(body)
        act = self._handler.enrol if path == ENROLMENTS_PATH else self._handler.renew
        try:
            return HttpAnswer(200, msgspec.json.encode(act(body, "device:1")))
        except Problem as problem:
            return HttpAnswer(problem.status, msgspec.json.encode({"detail": problem.detail}))
