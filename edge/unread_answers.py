"""How many bytes of answers a server has not read, by how far it has got with all that was written to it; no I/O."""

from collections import deque
from typing import Final

STEP_BYTES: Final = 16 << 10


class UnreadAnswers:
    """Answers have other bytes between them: the client's own messages, which have limits of their own. So this notes
    every 16 KiB how many answers were before. The count is wrong by at most that and the largest write, and begins with
    the first call of a time of waiting."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int]] = deque()  # (bytes written, bytes of answers among them), rising
        self._read = 0  # bytes of answers that the server has read at least

    def count(self, written: int, answered: int, waiting: int) -> int:
        """`written` bytes in all, `answered` of them answers; the server has yet to read the last `waiting` of them.
        To be called after each write while something waits."""
        notes = self._notes
        while notes and notes[0][0] <= written - waiting:
            self._read = notes.popleft()[1]
        if not notes:
            self._read = answered
        if not notes or written - notes[-1][0] >= STEP_BYTES:
            notes.append((written, answered))
        return answered - self._read
