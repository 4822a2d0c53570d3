"""The slash command ``/topics``, in words for a chat. Only reads, and only the user's own."""

from collections.abc import Sequence

from klaw.domain.names import UserId
from klaw.domain.topic import Topic
from klaw.memory.topics.search import TopicSearch
from klaw.store.readers import Readers
from klaw.store.sql import topics
from klaw.store.sql.topic_search import TopicFilters

SHOWN = 10


class TopicAnswers:
    """Lists topics, or finds some.

    Args:
        readers: of the store.
        search: for a query.
        enabled: whether topics are made at all.
    """

    def __init__(self, readers: Readers, search: TopicSearch, *, enabled: bool) -> None:
        self._readers = readers
        self._search = search
        self._enabled = enabled

    async def tell(self, user: UserId, query: str) -> str:
        """The newest topics, or those that fit a query. Raises StorageError."""
        if query:
            page = await self._search.search(query, TopicFilters(user=user), limit=SHOWN)
            if not page.hits:
                return "No topic fits that."
            return "\n".join(["Topics that fit, the best first:", *_lines([hit.topic for hit in page.hits])])
        found = await self._readers.run(topics.of_user, user, limit=SHOWN)
        if not found:
            return "There are no topics yet." if self._enabled else "Topics are off: topics.enabled switches them on."
        total = await self._readers.run(topics.count, user)
        more = [f"  … and {total - len(found)} more; `klaw topics list` shows all."] if total > len(found) else []
        return "\n".join(["Topics, the last talked about first:", *_lines(found), *more])


def _lines(found: Sequence[Topic]) -> list[str]:
    """A summary is shown whole: of a part, forgetting would not know what it is."""
    return [
        f"  {topic.id}  {topic.chat.partition(':')[2]}  {_days(topic)}  {' '.join(topic.summary.split())}"
        for topic in found
    ]


def _days(topic: Topic) -> str:
    first, last = topic.first_at[:10], topic.last_at[:10]
    return first if first == last else f"{first} to {last}"
