"""Short ways to make turn records in tests."""

import itertools

from klaw.domain.message import Message, TurnRecord, TurnStatus

_count = itertools.count(1)


def record(asked: Message, status: TurnStatus = TurnStatus.DONE) -> TurnRecord:
    return TurnRecord(
        id=f"turn{next(_count)}",
        chat=asked.chat,
        user=asked.user,
        segment=asked.segment,
        status=status,
        model="test/model",
        first_seq=asked.seq,
        last_seq=asked.seq,
        started_at=asked.created_at,
        ended_at=asked.created_at,
        error=None,
        receipt={"version": 1},
        usage={},
        timings={"llm": 1.0},
    )
