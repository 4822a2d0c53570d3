"""Asking for knowledge bases as users do, and documents without files."""

import base64
from typing import Any

import pytest

from klaw.app.app import App
from klaw.domain.knowledge import Document, DocumentState, Passage, SourceId, document_id
from klaw.operations.handler import OPERATOR, Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, perform, read
from tests.support import stored_documents
from tests.support.admin import parts_of


class Doors:
    """Asks as one user."""

    def __init__(self, app: App, user: str) -> None:
        self.app, self.caller = app, Caller(user=user) if user else OPERATOR

    async def __call__(self, name: str, /, **args: Any) -> dict[str, Any]:
        return await perform(read(operations()[name], args), self.caller, parts_of(self.app))

    async def refused(self, name: str, /, **args: Any) -> str:
        with pytest.raises(OperationError) as caught:
            await self(name, **args)
        return caught.value.code

    async def create(self, name: str, **fields: Any) -> str:
        return str((await self("kb_create", fields={"name": name, **fields}))["base"]["id"])

    async def upload(self, data: bytes, **args: Any) -> str:
        answer = await self("kb_upload", data=base64.b64encode(data).decode(), **args)
        return str(answer["upload"])

    async def add_file(self, base: str, name: str, data: bytes = b"text") -> dict[str, Any]:
        return await self("kb_add", base=base, upload=await self.upload(data), name=name)


async def fill(app: App, source: dict[str, Any], name: str, *texts: str, **fields: Any) -> Document:
    """What the indexer makes of a file."""
    own = SourceId(source["id"])
    made = Document(
        id=document_id(own, name), base=source["base"], source=own, name=name, state=DocumentState.READ, **fields
    )
    passages = [
        Passage(
            ordinal=at,
            text=text,
            start=at * 100,
            end=at * 100 + len(text),
            tokens=3,
            first_page=at + 1,
            last_page=at + 1,
        )
        for at, text in enumerate(texts)
    ]
    assert await app.core.writer.run(stored_documents.put, made, passages)
    return made
