"""Whatever people say in private and in groups: what a model is told, and answers, is of the same conversation only."""

import random
import re
from pathlib import Path

import pytest

from tests.channels.e2e.test_telegram_chat import said, telegram_world
from tests.support.llm_server import Recorded, Reply, text_reply
from tests.support.waiting import until

MARK = re.compile(r"mark-(\w+)-\d+")
ROUNDS = 40


def answer(request: Recorded) -> Reply:
    found = [found[0] for found in re.finditer(MARK, request.last_user)]
    return text_reply(f"heard {found[-1] if found else 'nothing'}")


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_crosses_between_people_and_groups(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with telegram_world(tmp_path, context={"slidingWindow": 2}) as world:
        await world.connect()
        people = [await world.paired(name, name.lower()) for name in ("Anna", "Boris")]
        groups = [world.telegram.group(title) for title in ("Family", "Club")]
        for group in groups:
            await group.adds_bot(people[0])
            await people[0].says("@klaw_bot hello", chat=group)
            code = (await said(group, "Its code is")).text.split("Its code is ")[1][:8]
            await world.ask("channels_pair", code=code)
            await said(group, "This group is connected")
        world.llm.respond = answer
        places = [*((person.chat, [person]) for person in people), *((group, people) for group in groups)]
        for number in range(ROUNDS):
            chat, members = chance.choice(places)
            person, private = chance.choice(members), chat.type == "private"
            mark = f"mark-{chat.title}-{number}"
            text = f"the secret password of the safe is {mark}, what do you know of it?"
            if chance.random() < 0.1:
                await person.says("/new" if private else "/new@klaw_bot", chat=chat)
            if private or chance.random() < 0.7:
                await person.says(text if private else f"@klaw_bot {text}", chat=chat)
                await said(chat, f"heard {mark}")
            else:
                await person.says(text, chat=chat)  # not meant for the bot
        await until(lambda: not world.telegram.updates)
        for request in world.llm.requests:
            assert len(set(MARK.findall(str(request.body)))) <= 1
        for chat, _ in places:
            assert {name for each in chat.of_bot for name in MARK.findall(each.text)} <= {chat.title}
        recalled = [each for each in world.llm.requests if len(set(re.findall(r"mark-\w+-\d+", str(each.body)))) > 3]
        assert recalled, "nothing was recalled, so nothing was shown"
