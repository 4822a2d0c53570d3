"""The part of compare_peers.py that runs in a peer's own environment: Python's library, numpy and the peer, no Klaw.

    python -I tools/peer_child.py PEER FOLDER...

Each FOLDER holds a conversation: ``job.json`` (language, messages, questions with their content words) and the unit
vectors of both, ``passages.npy`` and ``queries.npy``. Written into it: ``found.json``, for each question the places of
the messages that were found, the best first, and the milliseconds of CPU and of the clock that it took. Building the
index and one search to warm up are not counted. A peer that looks for the network ends the run
with an error.
"""

import contextlib
import json
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

FOUND = 50
"""Messages a question: more than 400 tokens of chat hold."""
FUSED = 20
"""Of each list that ``rrf`` fuses, and its k: the reference points of the shared conversations have these."""
RRF_K = 60
NANOBOT_READS = 8
"""Messages that nanobot's read_session gives for a text."""
STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
"""Lucene's for English. The file that fastembed downloads for BM25 is not to be had without a network."""


@dataclass(frozen=True)
class Chat:
    """A conversation to be searched; ``folder`` is for what the peer stores."""

    language: str
    texts: list[str]
    roles: list[str]
    times: list[float]
    vectors: np.ndarray
    folder: Path


@dataclass(frozen=True)
class Question:
    text: str
    words: list[str]
    vector: np.ndarray


Search = Callable[[Question], list[int]]


def bm25(chat: Chat) -> Search:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE messages USING fts5(content)")
    connection.executemany("INSERT INTO messages (rowid, content) VALUES (?, ?)", enumerate(chat.texts))

    def search(question: Question) -> list[int]:
        wanted = " OR ".join(f'"{word}"' for word in question.words)
        if not wanted:
            return []
        found = connection.execute(
            "SELECT rowid FROM messages WHERE messages MATCH ? ORDER BY rank LIMIT ?", (wanted, FOUND)
        )
        return [rowid for (rowid,) in found]

    return search


def rrf(chat: Chat) -> Search:
    by_words = bm25(chat)

    def search(question: Question) -> list[int]:
        nearest = np.argsort(-(chat.vectors @ question.vector), kind="stable")[:FUSED].tolist()
        scores: dict[int, float] = defaultdict(float)
        for ranked in (nearest, by_words(question)[:FUSED]):
            for rank, place in enumerate(ranked, 1):
                scores[place] += 1 / (RRF_K + rank)
        return sorted(scores, key=lambda place: -scores[place])

    return search


def chromadb(chat: Chat) -> Search:
    from chromadb import PersistentClient
    from chromadb.config import Settings

    client = PersistentClient(str(chat.folder), settings=Settings(anonymized_telemetry=False))
    collection = client.create_collection("chat", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None)
    ids = [str(place) for place in range(len(chat.texts))]
    collection.add(ids=ids, documents=chat.texts, embeddings=chat.vectors)

    def search(question: Question) -> list[int]:
        found = collection.query(query_embeddings=[question.vector], n_results=min(FOUND, len(ids)))
        return [int(each) for each in found["ids"][0]]

    return search


def lancedb(chat: Chat) -> Search:
    from lancedb import connect
    from lancedb.index import FTS
    from lancedb.rerankers import RRFReranker

    rows = [
        {"place": place, "text": text, "vector": vector}
        for place, (text, vector) in enumerate(zip(chat.texts, chat.vectors, strict=True))
    ]
    table = connect(str(chat.folder)).create_table("messages", data=rows)
    table.create_index("text", config=FTS(language={"ru": "Russian"}.get(chat.language, "English")))
    reranker = RRFReranker()

    def search(question: Question) -> list[int]:
        asked = table.search(query_type="hybrid").vector(question.vector).text(question.text)
        return [row["place"] for row in asked.rerank(reranker).limit(FOUND).to_list()]

    return search


def llamaindex(chat: Chat) -> Search:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.llms import MockLLM
    from llama_index.core.retrievers import QueryFusionRetriever
    from llama_index.core.schema import TextNode
    from llama_index.retrievers.bm25 import BM25Retriever
    from Stemmer import Stemmer

    asked: list[np.ndarray] = []

    class Known(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:  # noqa: ARG002 - as the base has it
            return asked[-1].tolist()

        async def _aget_query_embedding(self, query: str) -> list[float]:  # noqa: ARG002 - as the base has it
            return asked[-1].tolist()

        def _get_text_embedding(self, text: str) -> list[float]:  # noqa: ARG002 - as the base has it
            raise AssertionError("the nodes have vectors")

    nodes = [
        TextNode(id_=str(place), text=text, embedding=vector.tolist())
        for place, (text, vector) in enumerate(zip(chat.texts, chat.vectors, strict=True))
    ]
    most = min(FOUND, len(nodes))
    stemmer = Stemmer({"ru": "russian"}.get(chat.language, "english"))
    by_words = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=most, stemmer=stemmer, language=chat.language)
    by_meaning = VectorStoreIndex(nodes, embed_model=Known()).as_retriever(similarity_top_k=most)
    retriever = QueryFusionRetriever(
        [by_meaning, by_words],
        llm=MockLLM(),
        mode="reciprocal_rerank",
        similarity_top_k=most,
        num_queries=1,
        use_async=False,
    )

    def search(question: Question) -> list[int]:
        asked[:] = [question.vector]
        return [int(each.node.node_id) for each in retriever.retrieve(question.text)]

    return search


def langchain(chat: Chat) -> Search:
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_community.retrievers import BM25Retriever
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    asked: list[np.ndarray] = []

    class Known(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:  # noqa: ARG002 - as the base has it
            return chat.vectors.tolist()

        def embed_query(self, text: str) -> list[float]:  # noqa: ARG002 - as the base has it
            return asked[-1].tolist()

    documents = [Document(text, metadata={"place": place}) for place, text in enumerate(chat.texts)]
    store = InMemoryVectorStore(Known())
    store.add_documents(documents)
    by_words = BM25Retriever.from_documents(
        documents, k=FOUND, preprocess_func=lambda text: re.findall(r"\w+", text.lower())
    )
    by_meaning = store.as_retriever(search_kwargs={"k": FOUND})
    retriever = EnsembleRetriever(retrievers=[by_words, by_meaning], weights=[0.5, 0.5], id_key="place")

    def search(question: Question) -> list[int]:
        asked[:] = [question.vector]
        return [each.metadata["place"] for each in retriever.invoke(question.text)]

    return search


def txtai(chat: Chat) -> Search:
    from txtai import Embeddings

    asked: list[np.ndarray] = []
    left = iter(chat.vectors)

    def known(texts: Sequence[str]) -> np.ndarray:
        return np.array(asked or [next(left) for _ in texts])

    embeddings = Embeddings(method="external", transform=known, hybrid=True)
    embeddings.index(enumerate(chat.texts))

    def search(question: Question) -> list[int]:
        asked[:] = [question.vector]
        return [place for place, _ in embeddings.search(question.text, FOUND)]

    return search


def mem0(chat: Chat) -> Search:
    from fastembed.sparse.bm25 import Bm25
    from mem0 import Memory
    from mem0.embeddings.base import EmbeddingBase

    asked: list[np.ndarray] = []
    left = iter(chat.vectors)

    class Known(EmbeddingBase):
        def embed(self, text: str, memory_action: str | None = None) -> list[float]:  # noqa: ARG002 - as the base has it
            return (next(left) if memory_action == "add" else asked[-1]).tolist()

    never_called = {"provider": "openai", "config": {"api_key": "none"}}
    memory = Memory.from_config(
        {
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(chat.folder / "qdrant"), "embedding_model_dims": chat.vectors.shape[1]},
            },
            "llm": never_called,
            "embedder": never_called,
            "history_db_path": str(chat.folder / "history.db"),
        }
    )
    memory.embedding_model = Known()
    memory.vector_store._bm25_encoder = Bm25(
        "Qdrant/bm25", specific_model_path=str(chat.folder), stopwords=set(STOP_WORDS.split())
    )
    messages = [{"role": role, "content": text} for role, text in zip(chat.roles, chat.texts, strict=True)]
    added = memory.add(messages, user_id="anna", infer=False)["results"]
    places = {each["id"]: place for place, each in enumerate(added)}

    def search(question: Question) -> list[int]:
        asked[:] = [question.vector]
        found = memory.search(question.text, filters={"user_id": "anna"}, top_k=FOUND)
        return [places[each["id"]] for each in found["results"]]

    return search


def hermes(chat: Chat) -> Search:
    from hermes_state import SessionDB

    database = SessionDB(chat.folder / "state.db")
    database.create_session("chat", source="cli")
    places = {
        database.append_message("chat", role, text, timestamp=at): place
        for place, (role, text, at) in enumerate(zip(chat.roles, chat.texts, chat.times, strict=True))
    }

    def search(question: Question) -> list[int]:
        found = database.search_messages(" OR ".join(question.words), role_filter=["user", "assistant"], limit=FOUND)
        return [places[each["id"]] for each in found]

    return search


def nanobot(chat: Chat) -> Search:
    from nanobot.session.manager import SessionManager
    from nanobot.webui.session_access import WebuiSessionAccess

    sessions = SessionManager(chat.folder)
    session = sessions.get_or_create("cli:chat")
    for role, text, at in zip(chat.roles, chat.texts, chat.times, strict=True):
        session.add_message(role, text, timestamp=datetime.fromtimestamp(at).isoformat())  # noqa: DTZ006 - as it does
    sessions.save(session)
    access = WebuiSessionAccess(sessions)

    def search(question: Question) -> list[int]:
        hits: Counter[int] = Counter()
        for word in question.words:
            match = access.read("cli:chat", query=word, limit=NANOBOT_READS)
            hits.update(each["message_index"] for each in match["messages"])
        return sorted(hits, key=lambda place: (-hits[place], -place))

    return search


PEERS: dict[str, Callable[[Chat], Search]] = {
    each.__name__: each for each in (bm25, rrf, chromadb, lancedb, llamaindex, langchain, txtai, mem0, hermes, nanobot)
}


def forbid_network() -> list[str]:
    """Let no Python code reach another machine. Returns the list that attempts are put on."""
    attempts: list[str] = []

    def audit(event: str, values: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            host = values[0]
        elif event in ("socket.connect", "socket.sendto") and isinstance(values[-1], tuple):
            host = values[-1][0]
        else:
            return
        if host not in (None, "localhost", "127.0.0.1", "::1"):
            attempts.append(f"{event} {host}")
            raise PermissionError(f"a comparison has no network: {host}")

    sys.addaudithook(audit)
    return attempts


def read(folder: Path, scratch: Path) -> tuple[Chat, list[Question]]:
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    messages = job["messages"]
    chat = Chat(
        language=job["language"],
        texts=[each["content"] for each in messages],
        roles=[each["role"] for each in messages],
        times=[each["time"] for each in messages],
        vectors=np.load(folder / "passages.npy"),
        folder=scratch,
    )
    vectors = np.load(folder / "queries.npy")
    asked = zip(job["questions"], vectors, strict=True)
    return chat, [Question(text=each["text"], words=each["words"], vector=vector) for each, vector in asked]


def measured(search: Search, questions: Sequence[Question]) -> Iterator[tuple[list[int], float, float]]:
    """What each question finds, with milliseconds of CPU (of all threads) and of the clock."""
    search(questions[0])
    for question in questions:
        cpu, clock = time.process_time(), time.perf_counter()
        found = search(question)
        yield found, 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - clock)


def main() -> None:
    peer, *folders = sys.argv[1:]
    attempts = forbid_network()
    for folder in map(Path, folders):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, contextlib.redirect_stdout(sys.stderr):
            chat, questions = read(folder, Path(scratch))
            found, cpu_ms, clock_ms = zip(*measured(PEERS[peer](chat), questions), strict=True)
        answer = {"found": found, "cpu_ms": cpu_ms, "clock_ms": clock_ms}
        (folder / "found.json").write_text(json.dumps(answer), encoding="utf-8")
    if attempts:
        sys.exit(f"{peer} looked for the network: {', '.join(sorted(set(attempts)))}")


if __name__ == "__main__":
    main()
