"""Looking at sources again."""

from typing import TYPE_CHECKING, Any

from klaw.domain.knowledge import SourceId
from klaw.operations.handler import Caller, Parts
from klaw.operations.kb.noun import NOUN
from klaw.operations.kb.sources import OfSource
from klaw.operations.lines import Lines

if TYPE_CHECKING:
    from klaw.operations.answers.knowledge import RefreshedSource


def _lines(answer: dict[str, Any]) -> Lines:
    problem = answer["problem"]
    return [f"{answer['name']} is looked at again", *([f"when it was last looked at: {problem}"] if problem else [])]


@NOUN.operation("kb_refresh", OfSource, cli="refresh", show=_lines, changes=True, route="POST sources/{source}/refresh")
async def refresh(asked: OfSource, caller: Caller, parts: Parts) -> "RefreshedSource":
    """Look at a source again: read what could not be read, compare each file with what was read of it, fetch a page."""
    from klaw.store.kinds.knowledge import bases, sources

    source = await parts.readers.run(sources.get, caller.user, SourceId(asked.source))
    await parts.readers.run(bases.editable, caller.user, source.base)
    state = parts.knowledge.indexer.state_of(source.id)
    parts.knowledge.indexer.read_again(source.id)
    return {"source": source.id, "name": source.name, "problem": state.text if state is not None else ""}
