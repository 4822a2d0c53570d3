"""Invariant no-echo: what recall puts into a context is never stored or embedded as something new."""

import pytest

from klaw.domain.names import LOCAL_USER, chat_id
from klaw.domain.text import RECALL_HEADER
from klaw.store.search import vectors
from tests.e2e.invariants.test_in_scope import CASES, FILLER
from tests.support.inside import inside, kept
from tests.support.llm_server import serve_llm
from tests.support.server import write_home


@pytest.mark.parametrize(("fact", "question"), CASES, ids=["english", "russian"])
async def test_no_echo_recalled_text_is_neither_stored_nor_embedded(tmp_path, embedding_model_dir, fact, question):
    """After a turn with recall, the store holds what was said, once each, and a vector for no more than that."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, models=embedding_model_dir.parent, context={"slidingWindow": 4})
        async with inside(home) as here:
            await here.until(lambda: here.app.memory.embedder.status.state == "ready")
            for text in (fact, *FILLER):
                await here.ask(text, "main")
            await here.embedded()
            turn = await here.ask(question, "main")
            assert kept(turn), "something was recalled, or this test shows nothing"
            assert RECALL_HEADER in llm.requests[-1].body["messages"][0]["content"]
            await here.embedded()
            stored = await here.app.chats.after(chat_id(LOCAL_USER, "main"), 0, 100)
            spoken = [message.content for message in stored if message.role == "user"]
            assert spoken == [fact, *FILLER, question]
            assert not any(RECALL_HEADER in message.content for message in stored)
            limit = here.app.core.config.auto_rag.min_message_tokens
            long_enough = sum(message.tokens >= limit for message in stored)
            assert await here.app.core.readers.run(vectors.count_embedded) == long_enough
