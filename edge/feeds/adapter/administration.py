"""Administrative messages of one adapter: a fold over the topic `feeds`, and what to do about it (S4). Pure.

Both adapters read the records in one order, so they agree on them: of the announcements of a request with the same
attempt the first counts, and of the answers to it the first counts. **An adapter acts only on records that it has read
back.** So whatever it has sent in the past is on the topic, and a restarted one finds it there:

* An announcement that was read back binds whoever is in its slot: the message is sent at (N, k), unless the first
  answer refuses it before N is reached. After a restart it is sent there again if it may not have been: the same
  message at the same place is delivered once.
* An accepted answer binds whoever is in the other slot, in the same way.
* A place that any announcement has taken is given to no other message, and the backup refuses one that is (`taken`).

If an announcement is read back only after N has passed, the message is sent at once, as (N, k). Subscribers who have
gone on get it marked as late. :class:`feeds.synchronise.Schedule` and the verdicts are those of the core.

The **acting** adapter takes requests: the one in the preferred slot, or the only one. It also ends what another began
that is gone. A switch does not end an announcement: who made it carries it out, now as backup.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from edge.feeds.adapter.administrative_items import Item, Steps, Streams, View
from feeds.message import NUMBER_MAX
from feeds.registry_records import (
    AdministrativeRequest,
    AdministrativeResult,
    AnnouncementRecord,
    AnswerRecord,
    RegistryKey,
    RegistryRecord,
)
from feeds.synchronise import (
    Announcement,
    Due,
    OnRefusal,
    Place,
    Schedule,
    SynchroniseSettings,
    Verdict,
    verdict_on,
)

ANSWER_S: Final = 5.0
"""How long after sending the adapter waits for the answer of a backup that is alive, to say what has become of it."""


class Administration:
    """`adapter`: its name; `feed`: that of its feed. Requests beyond `settings.open_announcements` are refused, and
    those beyond `settings.answers` are not remembered; so are requests whose payloads pass `settings.payload_bytes`.
    `keep_s`: how long a result stays on the topic. `ignored` counts records that are not remembered."""

    def __init__(self, feed: str, adapter: str, settings: SynchroniseSettings, keep_s: float) -> None:
        self._feed, self._adapter = feed, adapter
        self._settings, self._keep_s = settings, keep_s
        self._items: dict[str, Item] = {}
        self._places: dict[tuple[str, int, int], str] = {}  # whose place it is, by the topic's order
        self._claimed: dict[tuple[str, int, int], str] = {}  # announced here, and not read back yet
        self._streams: Streams | None = None  # while the adapter sends
        self._payload_bytes = 0  # of all items
        self.ignored = 0

    # -- what the topic says -------------------------------------------------------------------------------------------

    def apply(self, key: RegistryKey, record: RegistryRecord | None, now: float) -> None:
        """Takes a record of the topic, in its order. Kinds that are none of its business are ignored."""
        if key.feed != self._feed or key.kind not in ("request", "announcement", "answer", "result"):
            return
        item = self._items.get(key.name)
        if record is None:
            is_undone = item is not None and item.announcement is None and item.result is None
            if key.kind == "result" or is_undone:
                self._forget(key.name)
            return
        if item is None:
            if len(self._items) >= self._settings.answers:
                self.ignored += 1
                return
            item = self._items[key.name] = Item()
        match record:
            case AdministrativeRequest():
                self._requested(item, record)
            case AnnouncementRecord():
                self._announced(key.name, item, record)
            case AnswerRecord():
                self._answered(item, record)
            case AdministrativeResult():
                item.result, item.result_at = record, now

    def _requested(self, item: Item, record: AdministrativeRequest) -> None:
        """Its payload is kept until the message is announced: the announcement has it too."""
        item.is_refused = item.announcement is None and not self._keep(item, len(record.payload))
        has_payload = item.announcement is None and not item.is_refused
        item.request = record if has_payload else replace(record, payload=b"")

    def _announced(self, name: str, item: Item, record: AnnouncementRecord) -> None:
        if item.announcement is not None and record.attempt <= item.announcement.attempt:
            return
        place = record.stream, record.after, record.part
        self._places.setdefault(place, name)
        self._claimed.pop(place, None)
        while len(self._places) > self._settings.answers:
            del self._places[next(iter(self._places))]
        if not self._keep(item, len(record.payload)):
            self.ignored += 1
            return
        self._unschedule(item)
        item.announcement, item.asked = record, max(item.asked, record.attempt)
        if item.request is not None:
            item.request, item.is_refused = replace(item.request, payload=b""), False

    def _answered(self, item: Item, record: AnswerRecord) -> None:
        announcement = item.announcement
        if announcement is None or record.attempt != announcement.attempt or record.adapter == announcement.adapter:
            return
        if (record.stream, record.after, record.part) != (announcement.stream, announcement.after, announcement.part):
            return
        if item.answer is None or item.answer.attempt < record.attempt:
            item.answer = record

    def _keep(self, item: Item, payload_bytes: int) -> bool:
        """Counts an item's payload instead of the one that it had; False: it would pass the limit."""
        total = self._payload_bytes - item.payload_bytes + payload_bytes
        if total > self._settings.payload_bytes:
            return False
        self._payload_bytes, item.payload_bytes = total, payload_bytes
        return True

    def _forget(self, name: str) -> None:
        item = self._items.pop(name, None)
        if item is not None:
            self._keep(item, 0)

    # -- what the adapter sends ----------------------------------------------------------------------------------------

    def activate(self, last: Mapping[str, int], sent: Iterable[tuple[str, int, int]] = ()) -> None:
        """The adapter begins to send. `last`: the highest number of each source stream, which it keeps up to date;
        `sent`: places of administrative messages that its slot's log has."""
        self.deactivate()
        self._streams = Streams(last)
        places = set(sent)
        for item in self._items.values():
            found = item.announcement
            if found is not None and (found.stream, found.after, found.part) in places:
                item.sent = found.attempt

    def deactivate(self) -> None:
        """The adapter sends no more."""
        self._streams = None
        self._claimed.clear()
        for item in self._items.values():
            item.is_scheduled = item.is_ending = item.is_removed = False
            item.sent = -1
            item.asked = -1 if item.announcement is None else item.announcement.attempt
            item.answering = -1 if item.answer is None else item.answer.attempt

    def advance(self, stream: str, sequence: int) -> Due | None:
        """What to send before and after message `sequence`; None if nothing waits in its source stream. Hot path."""
        streams = self._streams
        schedule = streams and streams.schedules.get(stream)
        if not schedule:
            return None
        due = schedule.advance(sequence)
        if due.before or due.after:
            self._mark_sent({(one.stream, one.after, one.part) for one in (*due.before, *due.after)})
            if not len(schedule) and streams is not None:
                del streams.schedules[stream]
        return due

    def step(self, view: View, now: float) -> Steps:
        """What follows from the records and from how far the adapter is. To be called after records and some times a
        second."""
        steps = Steps([], [])
        if self._streams is None:
            return steps
        for name, item in list(self._items.items()):
            if item.result is not None or item.is_ending:
                self._keep_word(item, view, now, steps)
                self._remove_old(name, item, view, now, steps)
            elif item.announcement is None:
                if view.is_acting and item.request is not None and item.asked < 0:
                    self._announce(name, item, item.request, 0, view, steps)
            else:
                self._carry_out(name, item, item.announcement, view, now, steps)
        return steps

    # -- inside --------------------------------------------------------------------------------------------------------

    def _carry_out(
        self, name: str, item: Item, found: AnnouncementRecord, view: View, now: float, steps: Steps
    ) -> None:
        slot = view.slot_of(found.adapter)
        is_own = slot == view.slot or found.adapter == self._adapter
        is_adopted = not is_own and view.is_acting and (slot is None or not view.is_other_held)
        if not is_own and not is_adopted and item.verdict is None:  # also if its place is taken
            self._answer(name, item, found, steps)
            return
        verdict, is_sent = self._verdict(name, item, found), item.sent == found.attempt
        is_refused = verdict is not None and verdict is not Verdict.ACCEPTED
        if is_refused and not is_sent:
            if not is_own:
                self._unschedule(item)
                if is_adopted:
                    why = f"the adapter {found.adapter} has ended after the backup had refused; ask again"
                    self._end(name, item, AdministrativeResult(outcome="cancelled", reason=why), steps)
                return
            if self._gives_way(name, item, found, verdict, view, steps):
                return
        assert self._streams is not None
        is_over = self._streams.last.get(found.stream, -1) < found.after and (
            view.has_ended or self._streams.is_over(found.stream)
        )
        if not is_sent and is_over and (is_own or is_adopted):
            self._unschedule(item)
            what = "source" if view.has_ended else "epoch of the source"
            reason = f"the {what} has ended before message {found.after}"
            self._end(name, item, AdministrativeResult(outcome="cancelled", reason=reason), steps)
        elif not is_sent:
            self._schedule(item, found, now, steps)
        elif is_own or is_adopted:
            self._report(name, item, found, view, now, steps)

    def _verdict(self, name: str, item: Item, found: AnnouncementRecord) -> Verdict | None:
        """The backup's, or `taken` for a place that another message was announced for before: nobody sends this one."""
        is_taken = self._places.get((found.stream, found.after, found.part), name) != name
        return Verdict.TAKEN if is_taken else item.verdict

    def _announce(
        self, name: str, item: Item, request: AdministrativeRequest, attempt: int, view: View, steps: Steps
    ) -> None:
        assert self._streams is not None
        stream = request.stream
        last = self._streams.last.get(stream)
        waiting = sum(1 for one in self._items.values() if one.asked >= 0 and one.result is None and not one.is_ending)
        reason = ""
        if last is None:
            reason = f"this feed has no source stream {stream[:100]!r}"
        elif waiting >= self._settings.open_announcements:
            reason = f"{waiting} administrative messages wait for their turn: try later"
        elif item.is_refused:
            reason = (
                f"administrative messages with {self._payload_bytes} bytes are remembered, and this one does not fit: "
                "try later, or raise administration.payload_bytes"
            )
        if last is None or reason:
            self._end(name, item, AdministrativeResult(outcome="refused", reason=reason), steps)
            return
        lead = view.lead(stream) if request.lead is None else request.lead
        if item.answer is not None:  # put off: the backup may be ahead
            last = max(last, item.answer.last)
        after = max(last, view.other_last.get(stream, -1)) + lead
        if after > NUMBER_MAX:
            self._end(name, item, AdministrativeResult(outcome="refused", reason="the numbers have ended"), steps)
            return
        part = 1
        while (stream, after, part) in self._places or (stream, after, part) in self._claimed:
            part += 1
        self._claimed[stream, after, part] = name
        item.asked = attempt
        record = AnnouncementRecord(
            stream=stream,
            after=after,
            part=part,
            payload=request.payload,
            adapter=self._adapter,
            boot=view.boot,
            attempt=attempt,
        )
        steps.writes.append((RegistryKey("announcement", self._feed, name), record))

    def _answer(self, name: str, item: Item, found: AnnouncementRecord, steps: Steps) -> None:
        if item.answering >= found.attempt:
            return
        assert self._streams is not None
        last = self._streams.last.get(found.stream, -1)
        waiting = sum(map(len, self._streams.schedules.values()))
        verdict = self._verdict(name, item, found) or verdict_on(found.after, last, waiting, self._settings)
        item.answering = found.attempt
        record = AnswerRecord(
            stream=found.stream,
            after=found.after,
            part=found.part,
            verdict=verdict.value,
            last=last,
            adapter=self._adapter,
            attempt=found.attempt,
        )
        steps.writes.append((RegistryKey("answer", self._feed, name), record))

    def _gives_way(
        self, name: str, item: Item, found: AnnouncementRecord, verdict: Verdict | None, view: View, steps: Steps
    ) -> bool:
        """What the active does about a refusal before it has sent the message; False: it sends it."""
        settings = self._settings
        is_taken, is_last = verdict is Verdict.TAKEN, found.attempt >= settings.put_off
        if settings.on_refusal is OnRefusal.CANCEL or (is_taken and is_last):
            self._unschedule(item)
            reason = f"the backup has refused: {verdict}"
            self._end(name, item, AdministrativeResult(outcome="cancelled", reason=reason), steps)
            return True
        if is_taken or (settings.on_refusal is OnRefusal.PUT_OFF and not is_last):
            self._unschedule(item)
            request = item.request
            if item.asked == found.attempt:
                asked = AdministrativeRequest(
                    stream=found.stream,
                    payload=found.payload,
                    lead=None if request is None else request.lead,
                    by="" if request is None else request.by,
                    at_us=0,
                )
                self._announce(name, item, asked, found.attempt + 1, view, steps)
            return True
        return False

    def _schedule(self, item: Item, found: AnnouncementRecord, now: float, steps: Steps) -> None:
        assert self._streams is not None
        if item.is_scheduled:
            return
        announcement = Announcement(found.stream, found.after, found.part, found.payload)
        last = self._streams.last.get(found.stream, -1)
        if last >= found.after:
            item.sent, item.sent_at = found.attempt, now
            steps.overdue.append(announcement)
            return
        item.is_scheduled = True
        self._streams.schedules.setdefault(found.stream, Schedule(last)).add(announcement)

    def _unschedule(self, item: Item) -> None:
        found = item.announcement
        if item.is_scheduled and found is not None and self._streams is not None:
            schedule = self._streams.schedules.get(found.stream)
            place: Place = found.after, found.part
            if schedule is not None and place in schedule:
                schedule.remove(place)
        item.is_scheduled = False

    def _mark_sent(self, places: set[tuple[str, int, int]]) -> None:
        for item in self._items.values():
            found = item.announcement
            if item.is_scheduled and found is not None and (found.stream, found.after, found.part) in places:
                item.is_scheduled, item.sent, item.sent_at = False, found.attempt, 0.0

    def _report(self, name: str, item: Item, found: AnnouncementRecord, view: View, now: float, steps: Steps) -> None:
        item.sent_at = item.sent_at or now
        verdict = self._verdict(name, item, found)
        if verdict is None and view.is_other_held and now - item.sent_at < ANSWER_S:
            return
        if verdict is Verdict.ACCEPTED:
            result = AdministrativeResult(outcome="both", after=found.after, part=found.part)
        else:
            reason = "there was no backup that answered" if verdict is None else f"the backup has refused: {verdict}"
            result = AdministrativeResult(outcome="alone", reason=reason, after=found.after, part=found.part)
        self._end(name, item, result, steps)

    def _end(self, name: str, item: Item, result: AdministrativeResult, steps: Steps) -> None:
        item.is_ending = True
        steps.writes.append((RegistryKey("result", self._feed, name), result))

    def _keep_word(self, item: Item, view: View, now: float, steps: Steps) -> None:
        """The active may be done before the backup, which has accepted, is at that point. And what it had sent may have
        been lost with its process."""
        if item.result is not None and item.result.outcome in ("cancelled", "refused", "unknown"):
            self._unschedule(item)
            return
        found = item.announcement
        if found is None or item.sent == found.attempt or item.is_ending:
            return
        slot = view.slot_of(found.adapter)
        is_alone = view.is_acting and (slot is None or not view.is_other_held)
        if item.verdict is Verdict.ACCEPTED or slot == view.slot or is_alone:
            self._schedule(item, found, now, steps)

    def _remove_old(self, name: str, item: Item, view: View, now: float, steps: Steps) -> None:
        is_old = item.result_at is not None and now - item.result_at >= self._keep_s
        if is_old and view.is_acting and not item.is_removed:
            item.is_removed = True
            for kind in ("request", "announcement", "answer", "result"):
                steps.writes.append((RegistryKey(kind, self._feed, name), None))
