"""Statements that are told which rows they are about read those rows only, however much a user or a chat has. Most of
them run in the writer, where every message waits for them."""

from pathlib import Path

import apsw

from klaw.store.engine import connect
from klaw.store.forget import scope as forget_scope
from klaw.store.kinds import topic_changes, topics, usage
from tests.support.stores import running_store

STATEMENTS = {
    "topics.by_ids": "SELECT * FROM topics " + topics._BY_IDS,
    "topics.topics_of": topics._TOPICS_OF,
    "topics.are_free": topics._MINE,
    "topics.losers": topics._LOSERS,
    "topics.join": topics._JOIN,
    "topic_changes.still_archived": topic_changes._STILL,
    "forget_scope.topics": forget_scope._TOPICS,
    "forget_scope.summaries": forget_scope._SUMMARIES,
    "forget_scope.facts": forget_scope._FACTS_MADE,
    "forget_scope.people": forget_scope._PEOPLE_MADE,
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
