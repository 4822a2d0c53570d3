"""Documents of a folder in a real store, with their vectors. What was read and embedded is kept in a folder, so that a
repetition takes minutes: passages by the file and the code that read it, vectors by the text and the model."""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import trio

import klaw.knowledge.reading
from klaw.domain.knowledge import (
    Base,
    BaseId,
    Document,
    DocumentId,
    DocumentState,
    Passage,
    Source,
    SourceId,
    SourceKind,
    document_id,
)
from klaw.domain.names import LOCAL_USER
from klaw.knowledge.reading.passages import Cutter
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import PassageText as Text
from klaw.memory.embed.passage import vectors_id
from klaw.memory.embed.token_coder import Reading
from klaw.store.kinds.knowledge import bases, sources
from klaw.store.search import passages
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.passages import PassageVector
from klaw.store.store import Store
from tests.support import stored_documents
from tests.support.documents import reading

AT = "2026-01-01T00:00:00.000Z"
THREADS = 2
_KEY = 32
_ROWS = 64


class KeptModel:
    """The embedding model; vectors of passages are kept in a file, one after the other, each behind its key."""

    def __init__(self, model: Path, folder: Path | None) -> None:
        # Two runs at a time with one thread each are quicker than one with two, and give the same vectors.
        self.model = EmbeddingModel.load(model, threads=THREADS, parallel_passages=True)
        self._threads = ThreadPoolExecutor(THREADS)
        self._path = folder / f"vectors-{_digest(self.model.model_id).hex()[:16]}" if folder is not None else None
        self._known: dict[bytes, bytes] = {}
        if self._path is not None and self._path.exists():
            size, data = _KEY + 4 * self.model.dimension, self._path.read_bytes()
            for at in range(0, len(data) // size * size, size):
                self._known[data[at : at + _KEY]] = data[at + _KEY : at + size]

    @property
    def id(self) -> str:
        return vectors_id(self.model.model_id)

    def read(self, texts: Sequence[str], kind: Any) -> list[Reading]:
        return self.model.read(texts, kind=kind)

    def embed(self, texts: Sequence[Text]) -> list[bytes]:
        """Vectors of passages."""
        keys = [_digest(f"{self.id}\0{each.context}\0{each.text}") for each in texts]
        missing = sorted(
            {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}.items(),
            key=lambda each: len(each[1].text),
        )
        parts = [missing[start : start + _ROWS] for start in range(0, len(missing), _ROWS)]
        for part, made in zip(parts, self._threads.map(self._embed, parts), strict=True):
            found = {key: vector.tobytes() for (key, _), vector in zip(part, made, strict=True)}
            self._known |= found
            if self._path is not None:
                with self._path.open("ab") as file:
                    file.write(b"".join(key + vector for key, vector in found.items()))
        return [self._known[key] for key in keys]

    def _embed(self, part: Sequence[tuple[bytes, Text]]) -> Any:
        return self.model.embed([text for _, text in part], "passage").astype("<f4")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@attrs.frozen(kw_only=True)
class ReadDocument:
    title: str
    passages: Sequence[Passage]


async def read_document(path: Path, kept: Path | None) -> ReadDocument:
    """A document, read by the real reader if it was not read before."""
    known = kept / f"read-{await trio.to_thread.run_sync(_key_of, path)}.json" if kept is not None else None
    if known is not None and known.exists():
        told = json.loads(known.read_text(encoding="utf-8"))
        return ReadDocument(title=told["title"], passages=[Passage(**each) for each in told["passages"]])
    cutter, cut = Cutter(), list[Passage]()
    async with reading(path) as begun:
        async for block in begun:
            cut += cutter.add(block)
    cut += cutter.finish()
    if known is not None:
        told = {"title": begun.report.title, "passages": [attrs.asdict(each) for each in cut]}
        known.write_text(json.dumps(told), encoding="utf-8")
    return ReadDocument(title=begun.report.title, passages=cut)


def _key_of(path: Path) -> str:
    code = sorted(Path(klaw.knowledge.reading.__file__).parent.rglob("*.py"))
    parts = [path.name.encode(), *(each.read_bytes() for each in (path, *code))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


async def new_base(store: Store, name: str) -> Source:
    """A base with one source."""
    base = Base(id=BaseId(f"bench-{name}"), user=LOCAL_USER, name=name, created_at=AT, updated_at=AT)
    await store.writer.run(bases.create, base)
    source = Source(
        id=SourceId(f"bench-{name}"),
        user=LOCAL_USER,
        base=base.id,
        kind=SourceKind.FILE,
        name=name,
        added_by=LOCAL_USER,
        created_at=AT,
        updated_at=AT,
    )
    await store.writer.run(sources.put, LOCAL_USER, source)
    return source


async def add(store: Store, source: Source, name: str, title: str, cut: Sequence[Passage]) -> DocumentId:
    """Store a document."""
    made = Document(
        id=document_id(source.id, name),
        base=source.base,
        source=source.id,
        name=name,
        title=title,
        state=DocumentState.READ,
    )
    await store.writer.run(stored_documents.put, made, cut)
    return made.id


async def read_folder(store: Store, source: Source, folder: Path, kept: Path | None = None) -> int:
    """Read all documents of a folder, the smallest first. Returns the number of passages."""
    count = 0
    for path in await trio.to_thread.run_sync(lambda: sorted(folder.iterdir(), key=lambda each: each.stat().st_size)):
        found = await read_document(path, kept)
        await add(store, source, path.name, found.title, found.passages)
        count += len(found.passages)
    return count


async def embed(store: Store, model: KeptModel) -> None:
    """Embed what waits, as the embedder does."""
    while waiting := await store.readers.run(passages.unembedded, model.id, 16 * _ROWS, ("document",)):
        made = await trio.to_thread.run_sync(model.embed, [Text(each.text, each.lead) for each in waiting])
        found = [
            PassageVector(each.kind, each.rowid, each.lead + each.text, vector)
            for each, vector in zip(waiting, made, strict=True)
        ]
        await store.writer.run(stored_vectors.store_of_passages, model.id, found)
