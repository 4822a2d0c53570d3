"""Words that a model adds to a question (``autoRag.expansion``): "instruments" → guitar, violin.

The model is asked while the question is searched for; then its words are searched for too, by full text, and count less
than the question's own. They never open the gate, and they are data: cleaned, few, and quoted in the search.
"""

from collections.abc import Sequence

import attrs
import structlog
import trio

from klaw.actor.failure import error_class
from klaw.errors import ConfigError
from klaw.llm.ask_json import Text, ask_json
from klaw.llm.client import Meter
from klaw.llm.errors import ProviderError
from klaw.llm.types import ChatMessage, JsonSchema
from klaw.memory.background_llm import Asker, CallCharge, question
from klaw.memory.recall.pipeline import MAX_QUERY_CHARACTERS, Account
from klaw.memory.recall.query import Query, content_words
from klaw.store.engine.tokenizer import stem
from klaw.store.search.fulltext import TextHit
from klaw.store.search.ranked_lists import Lists

PROMPT = "recall_expand"
MAX_WORDS = 12
MAX_READ_CHARACTERS = 600
"""Of what the model wrote."""
MAX_REPLY_TOKENS = 256
WEIGHT = 0.5
"""What a word of the model counts, where one of the question that is as rare counts 1."""

log = structlog.get_logger("klaw.recall")


@attrs.frozen
class ExpansionWords:
    words: tuple[Text, ...]


@attrs.frozen
class QuestionExpander:
    """Asks the model of ``routing.tasks.expansion``. The caller holds a slot."""

    asker: Asker

    async def words(self, text: str, query: Query, account: Account, meter: Meter) -> tuple[str, ...]:
        """Words to search for as well, until the account's deadline. Never raises for a failure: ``account`` says
        ``expansion_late`` or ``expansion_failed``, and there are none."""
        asker = attrs.evolve(self.asker, charge=CallCharge(meter))

        async def say(messages: tuple[ChatMessage, ...], schema: JsonSchema) -> str:
            route = asker.llm.router.route(task="expansion")
            said = await asker.call(route, messages, schema=schema, max_tokens=MAX_REPLY_TOKENS, priority=None)
            return said.text

        found: ExpansionWords | None = None
        with account.step("expand"), trio.move_on_at(account.deadline) as scope:
            try:
                asked = question(PROMPT, text[:MAX_QUERY_CHARACTERS])
                found = await ask_json(say, asked, "words", ExpansionWords, lambda answer: answer)
            except (ProviderError, ConfigError) as error:
                log.info("question_not_expanded", error=error_class(error))
        if found is None:
            account.say("expansion_late" if scope.cancelled_caught else "expansion_failed")
            return ()
        return added_words(found.words, query)


def added_words(written: Sequence[str], query: Query) -> tuple[str, ...]:
    """The content words of what a model wrote, without those of the question."""
    text = " ".join(written)[:MAX_READ_CHARACTERS]
    known = query.content_stems | query.stems
    return tuple(word for word in content_words(text, MAX_WORDS + len(known)) if stem(word) not in known)[:MAX_WORDS]


def with_added(lists: Lists, added: Lists, limit: int) -> Lists:
    """The lists of a question with what a search for the model's words found, the best ``limit`` by words."""
    hits = {hit.rowid: hit for hit in lists.hits}
    for hit in added.hits:
        own = hits.get(hit.rowid, TextHit(hit.rowid, 0.0))
        hits[hit.rowid] = attrs.evolve(own, bm25=own.bm25 + WEIGHT * hit.bm25, added=hit.shared)
    best = sorted(hits.values(), key=lambda hit: (hit.bm25, -hit.rowid))[:limit]
    places = {place.rowid: place for place in (*lists.places, *added.places)}
    return attrs.evolve(lists, hits=best, places=list(places.values()))
