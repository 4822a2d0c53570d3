"""Asking a knowledge base by itself: ``/rags/{id}/chat``, in a chat of its own for each user; and the files that
answers refer to."""

import os
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import attrs
from attrs.filters import include
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.actor.clock import iso
from klaw.api.conversation import ask
from klaw.api.files import download
from klaw.api.openapi import PREFIX, About, DescribedRoute
from klaw.api.problems import MODEL_FAILED, problem
from klaw.api.request_auth import QUERY, Api, message_id
from klaw.api.streams import while_connected
from klaw.chats.requests import HTTP, Submit
from klaw.config import safe_open
from klaw.convert import MAX_WHOLE, REQUESTS, Bounds
from klaw.domain import context_used
from klaw.domain.attachment import OTHER
from klaw.domain.context_used import ContextUsed
from klaw.domain.knowledge import BaseId, DocumentId, SourceKind, UsedPassage
from klaw.domain.message import Message, is_searchable
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.errors import HttpRefusal
from klaw.knowledge import folders
from klaw.operations.kb.bases import meant
from klaw.store.attachments import path_of
from klaw.store.kinds import chats, turns
from klaw.store.kinds.knowledge import documents, sources
from klaw.store.originals import path as path_of_original
from klaw.wire.frames import Send

CHAT = "kb-"
"""Begins the name of a base's chat, before the base's id."""
MOST = 100
PDF = "application/pdf"
_POLICIES = {
    # Chromium shows no PDF in a sandbox; in its viewer nothing of Klaw's is in reach of a document's script.
    PDF: "frame-ancestors 'none'",
    OTHER: "sandbox; default-src 'none'; frame-ancestors 'none'",
}


@attrs.frozen(kw_only=True)
class RagQuestion:
    question: Annotated[str, Bounds(1, 100_000)]


class RagAnswer(TypedDict):
    answer: str
    context_used: ContextUsed | None
    """What the model was given, with the texts; a passage's ``number`` is that of its marks."""
    sources: list[UsedPassage]
    """What of it the answer refers to, without the texts."""
    message_id: str


@attrs.frozen(kw_only=True)
class RagPage:
    limit: Annotated[int, Bounds(1, MOST)] = 50
    before: Annotated[int, Bounds(1)] | None = None
    """Only those before this ``seq``."""


class RagMessage(TypedDict):
    id: str
    seq: int
    role: str
    content: str
    context_used: ContextUsed | None
    created_at: str


class RagDialogue(TypedDict):
    messages: list[RagMessage]


def routes(api: Api) -> list[Route]:
    readers = api.core.readers

    async def chat_of(user: UserId, base: BaseId) -> str:
        """The user's chat of a base; bound to it, unless the user has bound it to others."""
        name = f"{CHAT}{base}"
        if await readers.run(chats.bound, user, chat_id(user, name)) is None:
            await api.core.writer.run(chats.bind, user, chat_id(user, name), [base], iso(api.core.clock.now()))
        return name

    async def converse(request: Request) -> Response:
        user, services = api.grant(request).user, api.services
        asked = await api.json(request, partial(REQUESTS.read, cls=RagQuestion))
        base = (await meant(request.path_params["id"], user, api.parts)).base
        sent_as = message_id(request.headers, api)
        new = Send(id=sent_as, chat=await chat_of(user, base.id), text=asked.question)
        said = Submit(id=new.id, text=new.text, channel=HTTP, question=True)
        async with ask(services, user, new.chat, said) as sent:
            outcome = await while_connected(request.receive, sent.wait)
        if outcome.code is not None or outcome.answer is None:
            return problem(MODEL_FAILED, outcome.code or "turn_failed", outcome.text or "there is no answer")
        used = (await _used(api, user, [outcome.turn or ""])).get(outcome.turn or "")
        cited = [each for each in used.without_texts().written()["passages"] if each["cited"]] if used else []
        told = {"answer": outcome.answer.content, "context_used": used and used.written(), "sources": cited}
        return JSONResponse({**told, "message_id": outcome.answer.id})

    async def history(request: Request) -> Response:
        user = api.grant(request).user
        page = QUERY.read(dict(request.query_params), RagPage)
        base = (await meant(request.path_params["id"], user, api.parts)).base
        chat = chat_id(user, f"{CHAT}{base.id}")
        said = await _said(api, chat, page)
        answered = [str(each.metadata.get("turn")) for each in said if context_used.KEY in each.metadata]
        used = await _used(api, user, answered)
        return JSONResponse({"messages": [_told(each, used.get(str(each.metadata.get("turn")))) for each in said]})

    async def file(request: Request) -> Response:
        user = api.grant(request).user
        document = await readers.run(documents.get, user, DocumentId(request.path_params["document"]))
        source = await readers.run(sources.get, user, document.source)
        root, name = path_of_original(api.core.paths.data_dir, source.id).parent, str(source.id)
        if source.kind is SourceKind.FOLDER:
            if why := await api.core.files.run(folders.allowed, source, api.core.config.kb, api.core.paths):
                raise HttpRefusal(403, f"its folder may not be read now: {why}")
            root, name = Path(source.where), document.name
        elif source.kind is SourceKind.MESSAGES:
            root, name = api.core.paths.data_dir, path_of(user, document.sha256)
        try:
            size = await api.core.files.run(_size, root, name)
        except OSError:
            raise HttpRefusal(404, "the document's file is not there, or cannot be read") from None

        kind = PDF if await api.core.files.run(_piece, root, name, 0, 5) == b"%PDF-" else OTHER

        def piece(first: int, count: int) -> Awaitable[bytes]:
            return api.core.files.run(_piece, root, name, first, count)

        answer = download(piece, size, kind, document.name.rpartition("/")[2])
        answer.headers["content-security-policy"] = _POLICIES[kind]
        return cast("Response", answer)

    about = "Ask a knowledge base. Question and answer are kept in the user's chat kb-ID."
    asked = About("rags_chat", about, "rags", body=RagQuestion, answer=RagAnswer)
    about = "What was asked and answered. The oldest comes first."
    read = About("rags_messages", about, "rags", RagPage, answer=RagDialogue)
    about = "A document's file. Only a PDF has its own media type."
    given = About("kb_document_file", about, "kb", gives=(PDF, OTHER))
    return [
        DescribedRoute("/rags/{id}/chat", converse, "POST", asked),
        DescribedRoute("/rags/{id}/chat/messages", history, "GET", read),
        DescribedRoute(f"{PREFIX}/kb/documents/{{document}}/file", file, "GET", given),
    ]


async def _used(api: Api, user: UserId, of_turns: list[str]) -> dict[str, ContextUsed | None]:
    found = await api.core.readers.run(turns.receipts, user, of_turns)
    return {turn: context_used.read(receipt) for turn, receipt in found.items()}


async def _said(api: Api, chat: ChatId, page: RagPage) -> list[Message]:
    """The newest questions and answers, oldest first; what tools did is left out."""
    said: list[Message] = []
    before = page.before or MAX_WHOLE
    while len(said) < page.limit:
        found = await api.services.chats.before(chat, before, MOST)
        said = [each for each in found if is_searchable(each.role, each.type)] + said
        if len(found) < MOST:
            break
        before = found[0].seq
    return said[-page.limit :]


def _told(message: Message, used: ContextUsed | None) -> dict[str, Any]:
    told = attrs.asdict(message, recurse=False, filter=include("id", "seq", "role", "content", "created_at"))
    return {**told, "context_used": used and used.written()}


def _size(root: Path, name: str) -> int:
    with safe_open.opened(root, name) as file:
        return file.info.st_size


def _piece(root: Path, name: str, offset: int, size: int) -> bytes:
    """Part of a file. Raises OSError, also when it is shorter now."""
    with safe_open.opened(root, name) as file:
        found = os.pread(file.fd, size, offset)
        if len(found) < min(size, max(0, file.info.st_size - offset)):
            raise OSError
        return found
