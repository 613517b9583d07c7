"""A SQLite file of the agent, with the log of ways beside what else it holds (M2, M20)."""

from pathlib import Path

from edge.agent.way import Step, WayLog
from edge.client.sqlite_file import SqliteFile, create_tables


class AgentFile(SqliteFile):
    """`schema`: statements that make missing tables. `log`: adds steps, in transactions of this file."""

    def __init__(self, path: Path, application_id: int, schema: str, log_entries: int) -> None:
        self._schema, self.log = schema, WayLog(log_entries)
        super().__init__(
            path,
            application_id,
            name="the file",
            in_use=": another agent runs in this directory",
            foreign="another program's file: use another directory for the agent",
        )

    def newest(self, count: int) -> list[Step]:
        """See :meth:`edge.agent.way.WayLog.newest`."""
        with self.transaction() as db:
            return self.log.newest(db, count)

    def steps_of(self, identifier: str) -> list[Step]:
        """See :meth:`edge.agent.way.WayLog.of_message`."""
        with self.transaction() as db:
            return self.log.of_message(db, identifier)

    def _make(self, *, is_new: bool) -> None:
        create_tables(self._db, self._schema)
        self.log.prepare(self._db)
