"""Summaries in the store: no message falls between summary and window, also after a kill; the logs give them again."""

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.actor.clock import iso
from klaw.config.memory import SummariesConfig
from klaw.context.assemble import assemble, plan
from klaw.context.inputs import Budget, Settings, Snapshot
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId
from klaw.domain.summary import NewSummary, SummaryState, ToolNote
from klaw.errors import StorageFull, SummaryOutdated
from klaw.memory.summaries.choosing import Rules, SummaryChunk, choose, evicted
from klaw.store import changes
from klaw.store.kinds import messages, records, summaries
from klaw.store.kinds.pending import read_rows
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.search import coverage
from klaw.store.search.coverage import ChatTally
from klaw.store.store import Store
from tests.support.memory.summaries import CHAT, begin_segment, say
from tests.support.processes import SCRIPT, start_silent
from tests.support.reindexing import differing, digests_of, ended, reindexing_store, run
from tests.support.stores import START, FullDisk, new, running_store
from tests.support.turns import record
from tests.support.waiting import until

RULES = Rules(config=SummariesConfig(threshold_fraction=0.4, left_out_tokens=150, max_tokens=80), sliding_window=4)
BUDGET = Budget(context_tokens=1_200, reply_reserve_tokens=100)
TEXTS = st.sampled_from(
    ["ok", "Моя сестра живёт в Риге", "a longer English sentence about the garden and the gate", "…"]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["say", "say", "say", "say", "tools", "command", "ask", "summary", "summary", "full", "new", "restart"]
        ),
        TEXTS,
        st.integers(1, 40),
    ),
    max_size=40,
)


def draft(chunk: SummaryChunk, size: int, **changes: Any) -> NewSummary:
    text = "Слово " * size
    first = chunk.messages[0]
    made = NewSummary(
        user=first.user,
        chat=first.chat,
        segment=first.segment,
        first_seq=chunk.first_seq,
        last_seq=chunk.last_seq,
        text=text,
        tokens=size * 3,
        model="stub/m",
        created_at=iso(START),
        prompt_tokens=100,
        completion_tokens=10,
    )
    return attrs.evolve(made, **changes)


async def pick(store: Store) -> tuple[Any, SummaryChunk | None]:
    found = await store.readers.run(summaries.uncovered, CHAT, 1_000)
    if found is None:
        return None, None
    follows = bool(found.live) and found.live[-1].last_seq == found.covered_to
    usable = BUDGET.usable
    chunk = choose(found.history, found.live, usable=usable, room=400, rules=RULES, cut=False, follows=follows)
    return found, chunk


class Talk:
    """Carries out random steps and checks the promise after each."""

    def __init__(self, root: Path, *, hold: bool) -> None:
        self.root = root
        self.hold = hold
        self.disk = FullDisk()
        self.made = 0

    async def do(self, steps: Any) -> None:
        rest = list(steps)
        while True:
            async with running_store(self.root, fsync=self.disk, checkpoint_bytes=4_000) as store:
                await self.check(store)
                while rest:
                    name, text, size = rest.pop(0)
                    if name == "restart":
                        break
                    await self._step(store, name, text, size)
                    await self.check(store)
                else:
                    return

    async def _step(self, store: Store, name: str, text: str, size: int) -> None:
        match name:
            case "say":
                await say(store, text * (1 + size % 4))
            case "tools":
                (asked,) = await store.writer.run(messages.append, [new(text)])
                call = {"id": "c", "name": "web", "arguments": "{}"}
                turn = f"t{asked.message.seq}"
                await store.writer.run(
                    messages.append,
                    [
                        new("", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, turn=turn, calls=[call]),
                        new(
                            "data " * size,
                            role=Role.TOOL,
                            kind=MessageKind.TOOL_RESULT,
                            turn=turn,
                            call="c",
                            name="web",
                        ),
                        new(text, role=Role.ASSISTANT, turn=turn),
                    ],
                    record(asked.message),
                )
            case "command":
                await store.writer.run(messages.append, [new("/status", kind=MessageKind.COMMAND)])
            case "ask":
                await store.writer.run(messages.append, [new(text)])
            case "new":
                await begin_segment(store)
            case _:
                await self._summarise(store, size, full=name == "full")

    async def _summarise(self, store: Store, size: int, *, full: bool) -> None:
        found, chunk = await pick(store)
        if chunk is None:
            return
        base = chunk.base
        made = draft(chunk, size)
        more = {
            "supersedes": [base.number] if base else [],
            "evicts": evicted(found.live, base, made.tokens, RULES),
            "notes": [ToolNote(seq=made.first_seq, call="c", tool="web", text="Дождь")] if size % 2 else [],
        }
        if full:
            self.disk.full = True
            with pytest.raises(StorageFull):
                await store.writer.run(summaries.put, made, **more)
            self.disk.full = False
            return
        await store.writer.run(summaries.put, made, **more)
        self.made += 1

    async def check(self, store: Store) -> None:
        """Every message of the segment that was said is in the window, in a live summary, or can be found; and where
        messages are held, nothing lies between summary and window."""
        session = await store.readers.run(messages.session, CHAT)
        if session is None:
            return
        limit = 1_000 if self.hold else RULES.sliding_window
        rows = await store.readers.run(read_rows, CHAT, limit, summarised=True)
        live = await store.readers.run(summaries.live, CHAT, session.segment)
        for before, after in itertools.pairwise(live):
            assert before.last_seq < after.first_seq
        if rows is None:
            return
        context = assemble(
            plan(
                Snapshot(
                    system_prompt="",
                    core_memory="",
                    summaries=rows.summaries,
                    summarised_to=rows.summarised_to,
                    history=rows.history,
                    has_older=rows.has_older,
                    pending=rows.pending,
                    unfinished=rows.unfinished,
                    tools_tokens=10,
                    budget=attrs.evolve(BUDGET, context_tokens=50_000 if self.hold else 1_200),
                    settings=Settings(
                        sliding_window=RULES.sliding_window,
                        recall_enabled=True,
                        recall_max_tokens=50,
                        hold_uncovered=self.hold,
                    ),
                )
            )
        )
        assert not any(message.seq <= rows.summarised_to for message in context.window)
        inside = {message.seq for message in (*context.window, *rows.pending, *rows.unfinished)}
        listed = await store.readers.run(coverage.rows, 0, 1 << 60, 10_000)
        findable = {row.seq for row in listed if row.findable or row.silent or not row.searchable}
        for row in listed:
            if row.seq < session.segment_start or not row.searchable or row.seq in inside:
                continue
            assert any(each.first_seq <= row.seq <= each.last_seq for each in live) or row.seq in findable, row
            if self.hold and row.seq > rows.summarised_to:
                raise AssertionError(f"{row.seq} lies between summary and window")
        tally = ChatTally()
        for row in listed:
            tally.add(row)
        held = await store.readers.run(coverage.summarised, CHAT)
        assert held == [(each.first_seq, each.last_seq) for each in live]
        assert tally.uncovered(await store.readers.run(coverage.window_start, CHAT, 4), held) == 0


@pytest.mark.parametrize("hold", [True, False])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_no_message_falls_between_summary_and_window(hold: bool, steps: Any) -> None:
    """Whatever is said, summarised, evicted, refused by a full disk, ended by /new or restarted; and the logs give the
    same database again."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        talk = Talk(root, hold=hold)
        trio.run(talk.do, steps)
        before = digests_of(root / "klaw.db")
        report = run(root)
        assert differing(report) == set(), report.tables
        assert report.swapped
        assert report.tally.summaries == talk.made
        assert digests_of(root / "klaw.db") == before
        for path in sorted(root.glob("klaw.db*")):
            path.unlink()
        trio.run(talk.do, [])
        assert digests_of(root / "klaw.db") == before


def test_a_lost_message_in_a_live_summary_is_covered_and_in_an_evicted_one_is_not() -> None:
    tally = ChatTally()
    lost = coverage.IndexRow(rowid=3, chat=CHAT, seq=3, searchable=True, words=None, vector=False, marked=False)
    tally.add(lost)
    assert tally.uncovered(10, [(1, 5)]) == 0
    assert tally.uncovered(10, [(4, 5)]) == 1
    assert tally.uncovered(3) == 0


async def grow(store: Store, count: int) -> None:
    """Talk and summaries, as many as come up."""
    for number in range(count):
        await say(store, f"Ещё одна фраза о саде, номер {number}, довольно длинная")
        found, chunk = await pick(store)
        if chunk is not None:
            made = draft(chunk, 5 + number % 10)
            base = chunk.base
            await store.writer.run(
                summaries.put,
                made,
                supersedes=[base.number] if base else [],
                evicts=evicted(found.live, base, made.tokens, RULES),
                notes=[ToolNote(seq=made.first_seq, call="c", tool="web", text=f"Заметка {number}")],
            )


async def test_a_reindex_beside_a_writing_server(tmp_path: Path) -> None:
    """Summaries that are made and change their state meanwhile are in the new database."""
    async with running_store(tmp_path) as store:
        await grow(store, 60)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await reindexer.start(ReindexOptions())
        while reindexer.status.state == "running":
            await grow(store, 3)
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped, (status.report.reason, status.report.tables)
        await grow(store, 5)
    before = digests_of(tmp_path / "klaw.db")
    (tmp_path / "klaw.db.old").unlink()
    assert run(tmp_path).swapped
    assert digests_of(tmp_path / "klaw.db") == before


@pytest.mark.parametrize(
    "forged", ["UPDATE summaries SET text = 'подделка' WHERE number = 1", "UPDATE tool_notes SET text = 'подделка'"]
)
async def test_a_difference_is_refused(tmp_path: Path, forged: str) -> None:
    async with running_store(tmp_path) as store:
        await grow(store, 30)
        await store.database.run(lambda connection: connection.execute(forged))
    report = run(tmp_path)
    assert not report.swapped
    assert differing(report) == {"summaries"}
    assert "подделка" not in repr(report)


CHILD = """
import sys, trio
from pathlib import Path
from tests.store.files.kinds.test_summaries import grow
from tests.support.stores import running_store
async def main():
    async with running_store(Path(sys.argv[1])) as store:
        await grow(store, 100_000)
trio.run(main)
"""


async def test_sigkill_leaves_whole_summaries_or_none(tmp_path: Path) -> None:
    """Five kills at any moment: after each, ranges follow each other, states agree, and the logs say the same."""
    for round_ in range(5):
        child = await start_silent([*SCRIPT, CHILD, str(tmp_path)])
        wanted = 20 * (round_ + 1)
        try:
            await until(lambda wanted=wanted: lines_in(tmp_path) >= wanted)
        finally:
            child.kill()
        await child.wait()
        await _check_ranges(tmp_path)
    before = digests_of(tmp_path / "klaw.db")
    assert run(tmp_path).swapped
    assert digests_of(tmp_path / "klaw.db") == before


def lines_in(root: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in root.glob("memory/*.jsonl"))


async def _check_ranges(root: Path) -> None:
    async with running_store(root) as store:
        every = await store.readers.run(summaries.of_chat, CHAT)
        speaking = [each for each in every if each.state is not SummaryState.SUPERSEDED]
        for before, after in itertools.pairwise(speaking):
            assert before.last_seq + 1 == after.first_seq
        assert [each.number for each in every] == list(range(1, len(every) + 1))


async def test_summaries_are_made_from_what_is_there(tmp_path: Path) -> None:
    """Two that were made from the same messages: the second is refused."""
    async with running_store(tmp_path) as store:
        for number in range(30):
            await say(store, f"Ещё одна фраза о саде, номер {number}, довольно длинная")
        _, chunk = await pick(store)
        assert chunk is not None
        await store.writer.run(summaries.put, draft(chunk, 5))
        with pytest.raises(SummaryOutdated):
            await store.writer.run(summaries.put, draft(chunk, 6))


@pytest.mark.parametrize(
    "changes",
    [
        {"text": ""},
        {"text": 5},
        {"first_seq": 9, "last_seq": 3},
        {"supersedes": ["x"]},
        {"notes": [{"seq": 1, "call": "c", "tool": "t", "text": " "}]},
        {"tokens": -1},
    ],
)
def test_a_malformed_line_of_the_journal_is_refused(changes: dict[str, Any]) -> None:
    value = {
        "segment": 0,
        "first_seq": 1,
        "last_seq": 4,
        "text": "t",
        "tokens": 1,
        "model": "m",
        "created_at": "t",
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "supersedes": [],
        "evicts": [],
        "notes": [],
    }
    line = {"entry": 1, "time": "t", "user_id": "local", "op": "put", "what": "summary", "key": f"{CHAT}#1"}
    assert records.read({**line, "value": value}).kind is summaries.SUMMARY
    with pytest.raises((TypeError, ValueError)):
        records.read({**line, "value": {**value, **changes}})
    with pytest.raises(ValueError, match="not the user's"):
        records.read({**line, "user_id": "anna", "value": value})


async def test_a_removed_summary_takes_its_notes_along(tmp_path: Path) -> None:
    """An entry of the journal that removes one, as a command to forget would write it."""
    entry = attrs.evolve(summaries.SUMMARY.removed(UserId("local"), (CHAT, 1), "2026-01"), entry=10_000)
    assert records.read(json.loads(changes.line(entry))) == entry
    async with running_store(tmp_path) as store:
        await grow(store, 30)

        def forget(connection: Any) -> int:
            with connection:
                changes.apply(connection, entry)
            return int(connection.execute("SELECT count(*) FROM tool_notes WHERE number = 1").get)

        assert await store.database.run(forget) == 0
        left = await store.readers.run(summaries.of_chat, CHAT)
        assert 1 not in {each.number for each in left}
