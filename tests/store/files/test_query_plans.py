"""Statements that are told which rows they are about read those rows only, however much a user or a chat has. Most of
them run in the writer, where every message waits for them."""

from pathlib import Path

import apsw

from klaw.store.engine import connect
from klaw.store.kinds import messages, people, summaries, topic_changes, topics, usage
from tests.support.stores import running_store

STATEMENTS = {
    "topics.by_ids": "SELECT * FROM topics " + topics._BY_IDS,
    "topics.topics_of": topics._TOPICS_OF,
    "topics.are_free": topics._MINE,
    "topics.losers": topics._LOSERS,
    "topics.join": topics._JOIN,
    "topic_changes.still_archived": topic_changes._STILL,
    "topic_changes.ever_with": topic_changes._HAVING,
    "summaries.covering": summaries._COVERING,
    "messages.ids_of": messages._IDS,
    "people.only_spoken_of_in": people._ONLY_SPOKEN_OF_IN,
    "background.drawn_with_day": usage._DRAWN,
    "background.put_drawn": usage._PUT_DRAWN,
}


async def test_rows_are_found_by_their_numbers(tmp_path: Path) -> None:
    async with running_store(tmp_path):
        pass
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(connection)
    for name, statement in STATEMENTS.items():
        bound = [None] * max(number for number in range(5) if f"?{number}" in statement)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bound)]
        read = [
            step
            for step in plan
            if step.split()[1:2] and step.split()[1] in ("messages", "m", "topics", "drawn_messages")
        ]
        wrong = [step for step in read if "INTEGER PRIMARY KEY" not in step and "person_mentions" not in step]
        assert (name, wrong) == (name, [])
        assert read, name
    connection.close()
