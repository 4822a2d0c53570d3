"""What was replaced by another variant reaches no prompt, recall, search, list or export, whatever was made of it."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from klaw.chats.requests import Submit
from klaw.domain.names import LOCAL_USER
from klaw.domain.summary import NewSummary
from klaw.operations.handler import Caller
from klaw.operations.perform import operations, perform, read
from klaw.store.kinds import facts, summaries, topic_edits, topics
from klaw.store.kinds.variants.replace import Wish
from tests.support.chats_world import World, world
from tests.support.facts import fact
from tests.support.llm_server import text_reply
from tests.support.server import run_klaw
from tests.support.topics import AT, draft

LISTS = ("fact_list", "person_list", "topics_list", "chats_list", "memory")
OF_CHAT = ("chats_summaries", "chats_export", "receipt", "chats_messages")
WORD = re.compile(r"[qa]\d+zyx")


async def ask(w: World, name: str, **given: Any) -> str:
    return json.dumps(await perform(read(operations()[name], given), Caller(user=LOCAL_USER), w.app), default=str)


async def shown(w: World) -> list[dict[str, Any]]:
    found = json.loads(await ask(w, "chats_messages", chat="main", limit=200))["messages"]
    return [each for each in found if each["kind"] == "text"]


async def make_something_of(w: World, number: int) -> None:
    """A fact of each message, a summary of the first ones, and a topic of those that are in none."""
    run, said = w.app.core.writer.run, await w.app.chats.after(w.chat, 0, 200)
    said = [each for each in said if WORD.search(each.content)]
    for each in said:
        made = fact(f"of {each.content}", user="local", message=each.id, chat=w.chat, turn=None)
        if not await w.app.core.readers.run(facts.same_text, LOCAL_USER, made.text, "-"):
            await run(facts.put, made, "new")
    live = [each.last_seq for each in await w.app.core.readers.run(summaries.live, w.chat, 0)]
    if older := [each for each in said[:-2] if each.seq > max(live, default=0)]:
        told = " ".join(each.content for each in older)
        put = NewSummary(
            user=LOCAL_USER, chat=w.chat, segment=0, first_seq=max(live, default=0) + 1, last_seq=older[-1].seq,
            text=f"Part {number}: {told}", tokens=3, model="m", created_at=AT,
        )  # fmt: skip
        await run(summaries.put, put)
    taken = await w.app.core.readers.run(topics.topics_of, LOCAL_USER, [each.rowid for each in said])
    if free := [each.rowid for each in said if each.rowid not in taken]:
        told = " ".join(each.content for each in said if each.rowid in free)
        await run(topic_edits.store, LOCAL_USER, w.chat, [draft(told, *free)], AT)


@pytest.mark.parametrize("seed", range(3))
async def test_replaced_words_go_nowhere(tmp_path: Path, seed: int) -> None:
    chance, number, turns = random.Random(seed), 0, 0
    ever: set[str] = set()
    replaced: set[str] = set()

    def word(kind: str) -> str:
        nonlocal number
        number += 1
        ever.add(made := f"{kind}{number}zyx")
        return made

    only = {"context": {"slidingWindow": 3}, "summaries": {"enabled": False}}
    async with world(tmp_path, only=only) as w:
        w.llm.respond = lambda _request: text_reply(f"You said {word('a')}.")
        for step in range(9):
            own = [each for each in await shown(w) if each["role"] == "user"] if step else []
            deed = chance.choice(("say", "edit", "again", "back")) if step > 3 else "say"
            if deed == "say":
                await w.send(f"I say {word('q')} now")
                turns += 1
            elif deed == "back" and (varied := [each for each in own if each.get("variant")]):
                wish = Wish(which=(one := chance.choice(varied))["seq"], number=1 + one["variant"]["number"] % 2)
                await w.app.chats.vary(LOCAL_USER, "main", wish, Submit(id="", text=""))
            else:
                wish, text = Wish(which=chance.choice(own)["seq"], edits=deed != "again"), f"No, {word('q')}"
                said = Submit(id=f"vary {step}", text=text if wish.edits else "")
                await w.app.chats.vary(LOCAL_USER, "main", wish, said)
                turns += 1
            if turns:
                await w.turn(turns)
            now = set(WORD.findall(json.dumps(await shown(w))))
            replaced = ever - now
            await make_something_of(w, step)

            lists = [await ask(w, each) for each in LISTS] + [await ask(w, each, chat="main") for each in OF_CHAT]
            found = [await ask(w, "search", query=f"{each} said", limit=30) for each in sorted(replaced)]
            kept = {name: set(WORD.findall(text)) for name, text in zip((*LISTS, *OF_CHAT), lists, strict=True)}
            assert {name: words & replaced for name, words in kept.items() if words & replaced} == {}, deed
            asked = {"query", "words", "words_left_out"}
            told = [{name: each for name, each in json.loads(text).items() if name not in asked} for text in found]
            assert set(WORD.findall(json.dumps(told))) & replaced == set(), deed
            turns += 1
            await w.send(f"What of {' '.join(sorted(replaced)[:3])}?")
            await w.turn(turns)
            prompt = json.dumps(w.llm.requests[-1].body["messages"][:-1])
            assert set(WORD.findall(prompt)) & replaced == set(), deed
            # the question itself is taken back, by an edit
            (last,) = [each for each in await shown(w) if each["role"] == "user"][-1:]
            await w.app.chats.vary(
                LOCAL_USER, "main", Wish(which=last["seq"], edits=True), Submit(id=f"q{step}", text=f"So {word('q')}")
            )
            turns += 1
            await w.turn(turns)
            replaced = ever - set(WORD.findall(json.dumps(await shown(w))))
        assert replaced
    folder = tmp_path / "exported"
    code, _, told_of = await run_klaw("export", "--to", str(folder), "--home", str(tmp_path))
    assert code == 0, told_of
    written = {name: set(WORD.findall(name.read_text())) for name in folder.rglob("*") if name.is_file()}
    assert any(written.values())
    assert {name.name: words & replaced for name, words in written.items() if words & replaced} == {}
