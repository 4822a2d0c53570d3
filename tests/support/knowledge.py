"""Knowledge bases with documents, put into a store without reading files."""

from typing import Any

from klaw.domain.knowledge import (
    Base,
    BaseId,
    Document,
    DocumentState,
    Passage,
    Source,
    SourceId,
    SourceKind,
    document_id,
)
from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.store.engine.writer import Writer
from klaw.store.kinds import chats
from klaw.store.kinds.knowledge import bases, sources
from tests.support import stored_documents

AT = "2026-11-23T10:00:00.000Z"


def base_of(name: str, user: UserId = LOCAL_USER, **fields: Any) -> Base:
    return Base(**{"id": BaseId(f"b-{name}"), "user": user, "name": name, "created_at": AT, "updated_at": AT, **fields})


async def base_with(
    writer: Writer, name: str, files: dict[str, list[str]], user: UserId = LOCAL_USER, **fields: Any
) -> Base:
    """A base with documents, one passage for each page."""
    base = await writer.run(bases.put, base_of(name, user, **fields))
    source = Source(
        id=SourceId(f"5{name.encode().hex()[:30]}"),
        user=user,
        base=base.id,
        kind=SourceKind.FOLDER,
        name="folder",
        where="/srv/folder",
        added_by=user,
        created_at=AT,
        updated_at=AT,
    )
    await writer.run(sources.put, user, source)
    for file, pages in files.items():
        document = Document(
            id=document_id(source.id, file),
            base=base.id,
            source=source.id,
            name=file,
            state=DocumentState.READ,
            pages=len(pages),
        )
        found, start = [], 0
        for page, text in enumerate(pages, 1):
            found.append(
                Passage(
                    ordinal=page - 1,
                    text=text,
                    heading=f"Глава {page}",
                    first_page=page,
                    last_page=page,
                    start=start,
                    end=start + len(text),
                    tokens=len(text) // 3,
                )
            )
            start += len(text) + 2
        await writer.run(stored_documents.put, document, found)
    return base


async def bound_to(writer: Writer, *made: Base, user: UserId = LOCAL_USER, chat: str = "main") -> None:
    """Bind a chat to bases."""
    await writer.run(chats.bind, user, chat_id(user, chat), [each.id for each in made], AT)
