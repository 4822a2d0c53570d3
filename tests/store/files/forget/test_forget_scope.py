"""What a user is told and costs others by forgetting: nothing of theirs, and no more than the text is long."""

from pathlib import Path

import apsw
import pytest

from klaw.domain.forget import MAX_PIECES, MAX_WORDLESS, PieceFinder, fragments
from klaw.domain.message import Role
from klaw.domain.names import UserId, chat_id
from klaw.memory.forget import forget as forget_module
from klaw.store.engine import connect
from klaw.store.forget import logs as forget_logs
from klaw.store.forget import proof, reach
from klaw.store.forget.logs import begin_cleaning
from klaw.store.forget.reach import ForgetTarget
from klaw.store.kinds import facts, messages
from klaw.store.kinds.summaries import copy_path
from klaw.store.store import Store
from tests.support.asking import forgetting_in
from tests.support.facts import fact
from tests.support.forgetting import forgetter, secret_past
from tests.support.scripted import TestClock
from tests.support.stores import START, new, running_store
from tests.support.topics import ANNA, say
from tests.support.writing import instead

MAIN = chat_id(ANNA, "main")
PINS = ["The PIN of the bank card is 4711.", "ПИН-код от карты банка: 4711."]


async def answers_of(root: Path, others: str, wanted: str) -> list[str]:
    """All that anna is told when she forgets a text, and what everybody else said is ``others``."""
    async with running_store(root) as store:
        await say(store, others, user="boris")
        await secret_past(store, root, others, user="boris")
        await store.writer.run(facts.put, fact(f"Boris: {others}"[:400], user="boris"), "new")
        (root / "klaw.db.old").write_bytes(others.encode())
        (root / "workspace").mkdir()
        (root / "workspace" / "MEMORY.md").write_text(others)
        said = [new(text, user="anna", at=START) for text in (wanted, "and something else that is longer")]
        await store.writer.run(messages.append, said)
        tell = forgetting_in(forgetter(store, root), TestClock(1_000.0))
        return [await tell(MAIN, what) for what in ("#1", "yes", "#1", wanted[:20])]


@pytest.mark.parametrize("text", PINS)
async def test_the_answers_are_the_same_whether_another_user_said_it_or_not(tmp_path: Path, text: str) -> None:
    for name in ("present", "absent"):
        (tmp_path / name).mkdir()
    present = await answers_of(tmp_path / "present", text, text)
    absent = await answers_of(tmp_path / "absent", "x" * len(text), text)
    assert present == absent
    assert present[1].startswith("Forgotten.")


@pytest.mark.parametrize("text", PINS)
async def test_nothing_of_another_user_is_touched(tmp_path: Path, text: str) -> None:
    """Not even a copy of a summary, or a torn line, that says the same."""
    async with running_store(tmp_path) as store:
        await secret_past(store, tmp_path, text, user="boris")
        boris = chat_id(UserId("boris"), "main")
        (log,) = sorted((tmp_path / "conversations" / "boris%3Amain").glob("*.jsonl"))
        await say(store, text, f"Somebody said: {text}")
        store.journal.checkpoint()
        with log.open("ab") as file:
            file.write(b'{"rowid":9,"user_id":"boris","content":"' + text.encode() + b"\n")
        his = {path: path.read_bytes() for path in [log, *(tmp_path / copy_path(boris, n) for n in (1, 2))]}
        rewritten: list[str] = []

        async def noted(begin, cleaner, paths):
            rewritten.extend(paths)
            return await begin(cleaner, paths)

        instead(store.writer, begin_cleaning, noted)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("main#1", ANNA))
        assert {path: path.read_bytes() for path in his} == his
        assert {path.split("/")[0] for path in rewritten} == {"conversations"}
        assert all("anna" in path for path in rewritten)


LINES = {
    "english": "line {n} of a long list of things that we have to buy",
    "russian": "строка {n} длинного списка вещей, которые надо купить",
    "chinese": "我们必须购买的一长串东西的第{n}行文字内容在这里",
    "one word": "pass {n}",
}


@pytest.mark.parametrize("language", LINES)
async def test_the_work_does_not_grow_with_the_number_of_lines(tmp_path: Path, language: str) -> None:
    """SQL statements of a look, and pieces that are looked for, of a message of 2,500 lines and of one of 25."""

    async def statements(root: Path, lines: int) -> int:
        text = "\n".join(LINES[language].format(n=n) for n in range(lines))
        async with running_store(root) as store:
            rowids = await say(store, text, "another message")
            await say(store, *(f"message {n} about {LINES[language].format(n=n)}" for n in range(50)))
            connection = apsw.Connection(str(root / "klaw.db"), flags=apsw.SQLITE_OPEN_READONLY)
            connect.prepare_reader(connection)
            count = 0

            def counted(*_: object) -> bool:
                nonlocal count
                count += 1
                return True

            connection.exec_trace = counted
            reach.plan(connection, ForgetTarget(user=ANNA, rowids=tuple(rowids[:1])), with_facts=True)
            connection.close()
            return count

    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    assert await statements(tmp_path / "few", 25) == await statements(tmp_path / "many", 2_500)
    quotes = PieceFinder.of(fragments(["\n".join(LINES[language].format(n=n) for n in range(2_500))]))
    assert len(quotes.pieces) <= MAX_PIECES
    assert len(quotes._wordless) <= MAX_WORDLESS
    assert len(forget_logs.needles(quotes.pieces[: proof.MOST_SEARCHED])) <= 6 * proof.MOST_SEARCHED


async def test_forgetting_in_a_chat_searches_no_file_and_makes_no_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    compact = forget_logs.compact

    def noted(connection: apsw.Connection, *, vacuum: bool) -> None:
        done.append("anew" if vacuum else "emptied")
        compact(connection, vacuum=vacuum)

    monkeypatch.setattr(forget_logs, "compact", noted)
    monkeypatch.setattr(forget_module, "_search", lambda *_: done.append("searched") or ())
    nudged: list[int] = []
    async with running_store(tmp_path) as store:
        await say(store, *(f"the secret number {n} of the safe" for n in range(5)))
        tool = forgetter(store, tmp_path)
        monkeypatch.setattr(tool.compactor, "nudge", lambda: nudged.append(1))
        tell = forgetting_in(tool, TestClock(1_000.0))
        for n in range(1, 6):
            await tell(MAIN, f"#{n}")
            assert (await tell(MAIN, "yes")).startswith("Forgotten.")
        assert done == ["emptied"]
        assert len(nudged) == 5


async def test_what_the_user_said_before_stays_and_is_told(tmp_path: Path) -> None:
    """Words count only where they can be a quote: behind the message; stock phrases never."""
    async with running_store(tmp_path) as store:
        said = await talk_of_twice(store)
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find("main#5", ANNA))
        left = {each.seq: each.content for each in await store.readers.run(messages.by_rowids, said)}
        assert left[1] == "My code is 4711 at the bank. Thank you very much!"
        assert left[2] == "You are welcome. Is there anything else I can help you with?"
        assert left[5] == ""
        assert left[6] == "Noted: [forgotten] You are welcome. Is there anything else I can help you with?"
        assert left[7] == "Thank you very much! And the garden?"
        assert [each.seq for each in proof.before.again] == [3]
        assert not any(proof.after.rows.values())


async def talk_of_twice(store: Store) -> list[int]:
    mine = "My new code is 8842 at the bank."
    thanks, offer = "Thank you very much!", "You are welcome. Is there anything else I can help you with?"
    texts = (f"My code is 4711 at the bank. {thanks}", offer, mine, offer, mine, f"Noted: {mine} {offer}")
    roles = (Role.USER, Role.ASSISTANT) * 2 + (Role.USER, Role.ASSISTANT, Role.USER)
    made = [
        new(text, user="anna", role=role)
        for text, role in zip((*texts, f"{thanks} And the garden?"), roles, strict=True)
    ]
    return [each.message.rowid for each in await store.writer.run(messages.append, made)]
