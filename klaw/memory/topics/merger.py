"""Whether a new topic goes on with an older one: asks the model."""

from collections.abc import Sequence
from functools import partial

from klaw.domain.quoting import one_line
from klaw.domain.topic import Topic
from klaw.llm.types import JsonSchema
from klaw.memory.topics.answers import MERGE_SCHEMA, BadAnswer, Merge, read_merge
from klaw.memory.topics.asking import Asker
from klaw.memory.topics.merging import Like
from klaw.memory.topics.texts import minute

_SCHEMA = JsonSchema(name="merge", schema=MERGE_SCHEMA)
PROMPT = "topics_merge"


async def decide(asker: Asker, new: Topic, candidates: Sequence[Like]) -> Merge | None:
    """With which candidate the new topic is to be merged; None when with none, or when no answer could be read.

    Raises:
        ProviderError, ConfigError: the model cannot be asked now.
    """
    try:
        read = partial(read_merge, candidates=len(candidates))
        return await asker.ask("topics", PROMPT, material(new, candidates), _SCHEMA, read)
    except BadAnswer:
        return None


def material(new: Topic, candidates: Sequence[Like]) -> str:
    """What the model is shown. Pure."""
    older = [f"{number}. {_line(like.topic)}" for number, like in enumerate(candidates, 1)]
    return "\n".join(["New topic:", _line(new), "", "Older topics:", *older])


def _line(topic: Topic) -> str:
    return f"[{minute(topic.first_at)} to {minute(topic.last_at)}] {one_line(topic.summary)}"
