"""A query that the model writes for a question (``kb.sparql.generate``): checked by real parsers before it is run,
bounded in rows and time, and told together with what it found."""

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TypeAlias

import attrs

from klaw.domain import tokens
from klaw.domain.text import one_line, tagged
from klaw.errors import BadAnswer, GraphError
from klaw.knowledge.graph import queries
from klaw.knowledge.graph.child import run
from klaw.knowledge.graph.graph import Recorder
from klaw.knowledge.graph.lookup import GraphPassage, labels_of
from klaw.knowledge.graph.matching import Asked
from klaw.knowledge.graph.terms import Answer, Iri, is_iri
from klaw.knowledge.graph.wording import told, value_text
from klaw.llm.ask_json import Text, ask_json
from klaw.llm.types import ChatMessage, JsonSchema
from klaw.memory.asking import question as asked_about

Say: TypeAlias = Callable[[tuple[ChatMessage, ...], JsonSchema], Awaitable[str]]
"""See ``ask_json``."""

PROMPT = "kb_sparql"
TRIES = 2
PROPERTIES = 60
MAX_QUESTION = 2_000
MAX_SPARQL = 8_000
CHECK_S = 10.0
MAX_TOKENS = 600
"""Of what a query found."""
_YES_NO = (("no", "yes"), ("нет", "да"))
_PROGRAM = Path(__file__).with_name("checker.py")


@attrs.frozen
class Written:
    """What the model answers."""

    sparql: Text = ""


async def write_and_ask(
    session: Callable[[], AbstractAsyncContextManager[Recorder]],
    text: str,
    asked: Asked,
    found: Sequence[GraphPassage],
    say: Say,
    most: int,
) -> GraphPassage | None:
    """Have the model write a query, and run it.

    Args:
        session: begins to ask the graph; none is open while the model writes.
        text: the question.
        asked: the same, read.
        found: what was found without a model.
        say: asks the model; what it raises goes through.
        most: rows.

    Returns:
        What the graph answers; None: the model wrote no query, or the graph has no answer to it.

    Raises:
        GraphError: ``bad_query``: what the model wrote is not run, the text says why; or the graph cannot be asked.
    """
    async with session() as asking:
        material = await _material(asking, text, asked, found)
    for left in reversed(range(TRIES)):
        written = await ask_json(say, asked_about(PROMPT, material), "query", Written, _written)
        if not written:
            break
        try:
            sparql = await checked(written, most)
            async with session() as asking:
                return await _worded(asking, sparql, await asking.ask(sparql, most), asked)
        except GraphError as error:
            if error.code != "bad_query" or not left:
                raise
            material += f"\n\n{tagged('refused', written)}\nThis was not run: {error}. Write another query."
    return None


async def checked(sparql: str, most: int) -> str:
    """A query as it may be run: see ``checker``. Raises GraphError: ``bad_query``."""
    if len(sparql) > MAX_SPARQL:
        raise GraphError("bad_query", f"the query is longer than {MAX_SPARQL} characters")
    asked = json.dumps({"sparql": sparql, "most": most}).encode()
    said = await run([sys.executable, "-P", str(_PROGRAM)], asked, CHECK_S)
    if said is None:
        raise GraphError("bad_query", "the query is too complicated")
    outcome = json.loads(said)
    if "refused" in outcome:
        raise GraphError("bad_query", str(outcome["refused"]))
    return str(outcome["sparql"])


def _written(answer: Written) -> str:
    if len(answer.sparql) > MAX_SPARQL:
        raise BadAnswer(f"sparql: has at most {MAX_SPARQL} characters")
    return answer.sparql


async def _material(asking: Recorder, text: str, asked: Asked, found: Sequence[GraphPassage]) -> str:
    """What the model is told of the question and the graph."""
    things = [passage.iri for passage in found if passage.iri]
    properties: dict[str, None] = {}
    for some in (things, []) if things else ([],):
        with suppress(GraphError):  # without them the model is told of the things all the same
            sparql = queries.properties(some, PROPERTIES)
            answer = await asking.rows(sparql, PROPERTIES, share=0.3)
            terms = (row.get("p") for row in answer.rows)
            properties |= {term.value: None for term in terms if isinstance(term, Iri) and is_iri(term.value)}
    labels = await labels_of(asking, properties, asked.languages, {})
    parts = {
        "question": one_line(text)[:MAX_QUESTION],
        "properties": "\n".join(f"<{iri}> {labels.property(iri)}" for iri in [*properties][:PROPERTIES]),
        "things": "\n".join(f"<{passage.iri}> {one_line(passage.label)}" for passage in found if passage.iri),
        "known": "\n".join(passage.text for passage in found),
    }
    return "\n\n".join(tagged(name, part) for name, part in parts.items() if part)


async def _worded(asking: Recorder, sparql: str, answer: Answer, asked: Asked) -> GraphPassage | None:
    """What a query found, one line for each row."""
    if isinstance(answer, bool):
        text = _YES_NO[asked.languages[0] == "ru"][answer]
    else:
        iris = {term.value for row in answer.rows for term in row.values() if isinstance(term, Iri)}
        labels = await labels_of(asking, iris, asked.languages, {})
        rows = [{name: value_text(row[name], labels) for name in answer.names if name in row} for row in answer.rows]
        lines = ["; ".join(f"{name}: {value}" for name, value in row.items() if value) for row in rows]
        text = told([*dict.fromkeys(filter(None, lines))], MAX_TOKENS)
    if not text:
        return None
    return GraphPassage(
        source=asking.source, iri="", label="SPARQL", text=text, tokens=tokens.estimate(text), score=1.0, sparql=sparql
    )
