"""SQL of ``klaw doctor`` about topics: whether their rows say what their messages are. Only reads."""

import apsw
import attrs

from klaw.store.engine.connect import snapshot
from klaw.store.kinds.topics import ARCHIVED
from klaw.store.search import topic_vectors
from klaw.store.search.topic_vectors import Flaws


@attrs.frozen(kw_only=True)
class TopicsChecked:
    """What was found; all but the last two must be nothing."""

    flaws: Flaws
    misfits: int
    """Messages with a topic that are of a kind without: commands, forgotten ones."""
    unindexed: int
    """Topics whose summary full text does not have."""
    orphans: int
    """Summaries in full text of topics that are gone."""
    returned: int
    """Topics that are there and on the list of those that are gone."""
    topics: int
    waiting: int
    """Topics that wait for their vector."""


_COUNTS = f"""
SELECT (SELECT count(*) FROM messages WHERE topic_id IS NOT NULL AND NOT ({ARCHIVED})),
    (SELECT count(*) FROM topics WHERE id NOT IN (SELECT id FROM topics_fts_docsize)),
    (SELECT count(*) FROM topics_fts_docsize WHERE id NOT IN (SELECT id FROM topics)),
    (SELECT count(*) FROM topic_ends WHERE id IN (SELECT id FROM topics)),
    (SELECT count(*) FROM topics)
"""  # noqa: S608 - constant condition


def topics_checked(connection: apsw.Connection) -> TopicsChecked:
    """Look at all topics of all users at one moment; reads everything."""
    with snapshot(connection):
        misfits, unindexed, orphans, returned, count = connection.execute(_COUNTS).get
        return TopicsChecked(
            flaws=topic_vectors.flaws(connection),
            misfits=misfits,
            unindexed=unindexed,
            orphans=orphans,
            returned=returned,
            topics=count,
            waiting=topic_vectors.count_unembedded(connection),
        )
