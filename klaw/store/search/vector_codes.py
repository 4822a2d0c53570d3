"""SQL of the vectors' codes: blocks of records, each of one chat, that a search over many vectors reads first.

The codes are made from ``vec_messages`` and can be made again. There are none until CENTRE_SAMPLE vectors are stored,
because the centre that is taken away before encoding is the mean of those; it stays the same then, and is kept in
``meta`` with the progress. What was stored before, also by an earlier version, is encoded in steps (``advance``), in
the order of row ids; a vector stored meanwhile is encoded at once if its turn has passed.
"""

import itertools
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import apsw
import attrs
import numpy as np
import numpy.typing as npt

from klaw.domain.message import Role
from klaw.domain.names import UserId
from klaw.store.engine import meta
from klaw.store.kinds.messages import MESSAGE, SESSION
from klaw.store.search import vector_quantizer as codes

CENTRE_SAMPLE = 1_000
"""Vectors whose mean is the centre. With fewer, an exact search is quick."""
STEP = 500
"""Vectors that one step encodes: a few tens of milliseconds of the writer's time."""
FIRST_BLOCK, LARGEST_BLOCK = 16, 512
"""Records of a chat's blocks: each has twice the room of the one before, so that a small chat wastes little."""
_BLOCKS_AT_ONCE = 32
CACHED_BYTES = 16_000_000
"""Kept of the chats in use: some 130,000 messages."""

_LAYOUT = 1
"""Changes with the records' meaning; codes of another layout are made again."""
_KEY = "vector_codes"


@attrs.frozen(kw_only=True)
class CodesState:
    centre: codes.Floats = attrs.field(eq=False)
    coded: int
    """The last row id that was encoded in its turn; larger ones have no code unless ``complete``."""
    complete: bool
    generation: str
    """Another one after records were overwritten or made again."""


@attrs.frozen(kw_only=True)
class Filters:
    """Which of a user's vectors a search may return."""

    user: UserId | None = None
    """None with a chat only, which has one user."""
    chat_key: int | None = None
    first_seq: int = 0
    end_seq: int | None = None
    since_s: int | None = None
    """Unix seconds, included."""
    until_s: int | None = None
    """Unix seconds, not included."""
    role: Role | None = None
    last_rowid: int | None = None


_CLEAR = "DELETE FROM vec_blocks; DELETE FROM vec_block_data; DELETE FROM meta WHERE key = 'vector_codes'"


def clear(connection: apsw.Connection) -> None:
    connection.execute(_CLEAR)


def state(connection: apsw.Connection) -> CodesState | None:
    """How far the codes are; None when there are none yet."""
    stored = meta.get(connection, _KEY)
    values = json.loads(stored) if stored is not None else {}
    if values.pop("layout", None) != _LAYOUT:
        return None
    # The first is of a database from before there were any.
    return CodesState(**{"generation": "", **values, "centre": codes.load(values["centre"])})


def _put_state(connection: apsw.Connection, new: CodesState) -> None:
    values = {"layout": _LAYOUT, **attrs.asdict(new), "centre": codes.dump(new.centre)}
    meta.put(connection, _KEY, json.dumps(values))


def add(connection: apsw.Connection, stored: Sequence[codes.VectorItem]) -> None:
    """Encode vectors that were just stored, if their turn has passed."""
    now = state(connection)
    if now is not None:
        _append(connection, now, [each for each in stored if now.complete or each.rowid <= now.coded])


_HAS_SAMPLE = "SELECT count(*) FROM (SELECT 1 FROM vec_messages_rowids LIMIT ?)"
_SAMPLE = """
SELECT v.embedding FROM (SELECT rowid FROM vec_messages_rowids ORDER BY rowid LIMIT ?) AS r
CROSS JOIN vec_messages AS v ON v.rowid = r.rowid
"""
_NEXT = "SELECT rowid FROM vec_messages_rowids WHERE rowid > ? ORDER BY rowid LIMIT ?"
_ITEMS = f"""
SELECT m.rowid, m.seq, coalesce(unixepoch(m.created_at), 0), m.role, v.embedding, s.chat_key, m.user_id
FROM json_each(?) AS r CROSS JOIN {MESSAGE.table} AS m ON m.rowid = r.value
CROSS JOIN {SESSION.table} AS s ON s.chat_id = m.chat_id CROSS JOIN vec_messages AS v ON v.rowid = m.rowid
"""  # noqa: S608 - constant names


def advance(connection: apsw.Connection) -> bool:
    """Encode the next STEP vectors that have no code. Returns whether there may be more to do."""
    now = state(connection) or _begin(connection)
    if now is None or now.complete:
        return False
    rowids = [row[0] for row in connection.execute(_NEXT, (now.coded, STEP))]
    _append(connection, now, [codes.VectorItem(*row) for row in connection.execute(_ITEMS, (json.dumps(rowids),))])
    complete = len(rowids) < STEP
    _put_state(connection, attrs.evolve(now, coded=rowids[-1] if rowids else now.coded, complete=complete))
    return not complete


def _begin(connection: apsw.Connection) -> CodesState | None:
    """Fix the centre, once there are vectors enough. Codes of another layout are dropped."""
    if connection.execute(_HAS_SAMPLE, (CENTRE_SAMPLE,)).get < CENTRE_SAMPLE:
        return None
    sample = [row[0] for row in connection.execute(_SAMPLE, (CENTRE_SAMPLE,))]
    clear(connection)
    centre = codes.mean(sample, len(sample[0]) // 4)
    return CodesState(centre=centre, coded=0, complete=False, generation=secrets.token_hex(8))


_LAST = "SELECT block, used, capacity FROM vec_blocks WHERE chat_key = ? ORDER BY block DESC LIMIT 1"
_NEW_BLOCK = "INSERT INTO vec_blocks (user_id, chat_key, used, capacity) VALUES (?, ?, 0, ?)"
_NEW_DATA = "INSERT INTO vec_block_data (block, records) VALUES (?, zeroblob(?))"


def _append(connection: apsw.Connection, now: CodesState, stored: Sequence[codes.VectorItem]) -> None:
    def place(each: codes.VectorItem) -> tuple[str, int]:
        return each.user, each.chat_key

    for (user, chat_key), group in itertools.groupby(sorted(stored, key=place), key=place):
        records = codes.encode(list(group), now.centre)
        done = 0
        while done < len(records):
            block, used, capacity = _room(connection, user, chat_key, records.dtype.itemsize)
            part = records[done : done + capacity - used]
            with connection.blob_open("main", "vec_block_data", "records", block, True) as blob:
                blob.seek(used * records.dtype.itemsize)
                blob.write(part.tobytes())
            connection.execute("UPDATE vec_blocks SET used = ? WHERE block = ?", (used + len(part), block))
            done += len(part)


def _room(connection: apsw.Connection, user: str, chat_key: int, record_size: int) -> tuple[int, int, int]:
    """Block, used and capacity of a chat's last block, which has room."""
    last = connection.execute(_LAST, (chat_key,)).fetchone()
    if last is not None and last[1] < last[2]:
        return int(last[0]), int(last[1]), int(last[2])
    capacity = FIRST_BLOCK if last is None else min(LARGEST_BLOCK, last[2] * 2)
    connection.execute(_NEW_BLOCK, (user, chat_key, capacity))
    block = connection.last_insert_rowid()
    connection.execute(_NEW_DATA, (block, capacity * record_size))
    return block, 0, capacity


_OF_CHAT = """
SELECT b.block, b.used, d.records FROM vec_blocks AS b JOIN vec_block_data AS d USING (block) WHERE b.chat_key = ?
"""


def erase(connection: apsw.Connection, chat_key: int, rowids: Sequence[int]) -> None:
    """Overwrite the codes of some rows of a chat with zeros, which no search returns."""
    now = state(connection)
    if now is None:
        return
    _put_state(connection, attrs.evolve(now, generation=secrets.token_hex(8)))
    kind = codes.record_type(len(now.centre))
    blocks: list[tuple[int, int, bytes]] = list(connection.execute(_OF_CHAT, (chat_key,)))
    for block, used, data in blocks:
        records = np.frombuffer(data[: used * kind.itemsize], kind)
        for place in np.flatnonzero(np.isin(records["rowid"], rowids)).tolist():
            with connection.blob_open("main", "vec_block_data", "records", block, True) as blob:
                blob.seek(place * kind.itemsize)
                blob.write(bytes(kind.itemsize))


def count(connection: apsw.Connection, chat_key: int) -> int:
    return int(connection.execute("SELECT coalesce(sum(used), 0) FROM vec_blocks WHERE chat_key = ?", (chat_key,)).get)


_SCAN = """
SELECT b.used, d.records FROM vec_blocks AS b CROSS JOIN vec_block_data AS d ON d.block = b.block
WHERE b.{column} = ?
"""
_SCAN_CHAT = _SCAN.format(column="chat_key")
_SCAN_USER = _SCAN.format(column="user_id")


def candidates(
    connection: apsw.Connection, now: CodesState, query: bytes, filters: Filters, rough: int, fine: int
) -> list[tuple[int, float]]:
    """Row ids of the probably nearest vectors with estimated distances: of ``rough`` by signs the best ``fine``."""
    coded = codes.CodedQuery(query, now.centre)
    kept: list[codes.Records] = []
    scores: list[codes.Floats] = []
    bound, waiting = -np.inf, 0
    for records in _batches(connection, now, filters):
        score = coded.rough(records)
        near = _near(records, score, bound, filters)
        if len(near) > rough:
            near = near[np.argpartition(-score[near], rough)[:rough]]
        kept.append(codes.take(records, near))
        scores.append(score[near])
        waiting += len(near)
        if waiting > 2 * rough or (waiting >= rough and bound == -np.inf):
            kept, scores = _best(kept, scores, rough)
            bound, waiting = float(scores[0].min()), rough
    if not waiting:
        return []
    ((best,), _) = _best(kept, scores, rough)
    estimated = -coded.fine(best)
    order = np.argsort(estimated)[:fine]
    found: dict[int, float] = {}
    for rowid, distance in zip(best["rowid"][order].tolist(), estimated[order].tolist(), strict=True):
        found.setdefault(rowid, distance)  # twice where a vector was replaced: the old code stays
    return list(found.items())


def _near(records: codes.Records, score: codes.Floats, bound: float, filters: Filters) -> npt.NDArray[np.intp]:
    """Places of the records above a bound that the filters allow; of few records looking at the filters is cheap."""
    if bound == -np.inf:
        return np.flatnonzero(_allowed(records, filters))
    near = np.flatnonzero(score > bound)
    return near[_allowed(codes.take(records, near), filters)]


def _best(
    kept: Sequence[codes.Records], scores: Sequence[codes.Floats], wanted: int
) -> tuple[list[codes.Records], list[codes.Floats]]:
    joined = np.concatenate(scores)
    order = np.argpartition(-joined, wanted)[:wanted] if len(joined) > wanted else np.arange(len(joined))
    return [codes.take(codes.join(kept), order)], [joined[order]]


class CodeCache:
    """The codes of the chats that were used last, for all readers' threads: fetching those of a long chat takes longer
    than comparing them. Records are only ever appended to a chat's blocks, so what is kept stays true. When some are
    overwritten (``erase``) or made again, the codes get another generation, and nothing of the old one is used."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._generation = ""
        self._chats: OrderedDict[int, npt.NDArray[np.uint8]] = OrderedDict()

    def records(
        self, connection: apsw.Connection, generation: str, chat_key: int, kind: np.dtype[np.void]
    ) -> codes.Records | None:
        """A chat's records as the snapshot has them in which ``generation`` was read; None when they are too many."""
        blocks = [(block, used * kind.itemsize) for block, used in connection.execute(_BLOCKS, (chat_key,))]
        size = sum(used for _, used in blocks)
        if size > self._max_bytes:
            return None
        kept = self._kept(generation, chat_key)
        if len(kept) < size:
            own = np.empty(size - len(kept), np.uint8)
            _read_records(connection, blocks, len(kept), own)
            kept = np.concatenate([kept, own])
            self._put(generation, chat_key, kept)
        return kept[:size].view(kind)

    def _kept(self, generation: str, chat_key: int) -> npt.NDArray[np.uint8]:
        with self._lock:
            if generation != self._generation:
                self._generation = generation
                self._chats.clear()
            if chat_key in self._chats:
                self._chats.move_to_end(chat_key)
            return self._chats.get(chat_key, np.empty(0, np.uint8))

    def _put(self, generation: str, chat_key: int, chat: npt.NDArray[np.uint8]) -> None:
        with self._lock:
            # Another thread may have put more meanwhile, which a newer snapshot has.
            if generation == self._generation and len(chat) > len(self._chats.get(chat_key, ())):
                self._chats[chat_key] = chat
                self._chats.move_to_end(chat_key)
                while sum(map(len, self._chats.values())) > self._max_bytes:
                    self._chats.popitem(last=False)


_BLOCKS = "SELECT block, used FROM vec_blocks WHERE chat_key = ? ORDER BY block"


def _read_records(
    connection: apsw.Connection, blocks: list[tuple[int, int]], begin: int, into: npt.NDArray[np.uint8]
) -> None:
    done = 0
    for block, used in blocks:
        if begin >= used:
            begin -= used
            continue
        with connection.blob_open("main", "vec_block_data", "records", block, False) as blob:
            if blob.length() < used:
                raise apsw.CorruptError("a block of vector codes is too short")
            blob.seek(begin)
            blob.read_into(into.data, done, used - begin)
        done, begin = done + used - begin, 0


_cache = CodeCache(CACHED_BYTES)


def _batches(connection: apsw.Connection, now: CodesState, filters: Filters) -> Iterator[codes.Records]:
    kind = codes.record_type(len(now.centre))
    rows: Iterable[tuple[int, bytes]]
    if filters.chat_key is not None:
        # What the writer has not committed must not be kept.
        if connection.readonly("main"):
            kept = _cache.records(connection, now.generation, filters.chat_key, kind)
            if kept is not None:
                yield kept
                return
        rows = connection.execute(_SCAN_CHAT, (filters.chat_key,))
    else:
        rows = connection.execute(_SCAN_USER, (filters.user,))
    while part := list(itertools.islice(rows, _BLOCKS_AT_ONCE)):
        whole = b"".join(memoryview(records)[: used * kind.itemsize] for used, records in part)
        yield np.frombuffer(whole, kind)


def _allowed(records: codes.Records, filters: Filters) -> npt.NDArray[np.bool_]:
    allowed: npt.NDArray[np.bool_] = records["rowid"] > 0
    role = codes.ROLES.get(filters.role, 0) if filters.role is not None else None
    for column, passes, limit in (
        ("seq", np.greater_equal, filters.first_seq or None),
        ("seq", np.less, filters.end_seq),
        ("created_s", np.greater_equal, filters.since_s),
        ("created_s", np.less, filters.until_s),
        ("role", np.equal, role),
        ("rowid", np.less_equal, filters.last_rowid),
    ):
        if limit is not None:
            allowed &= passes(records[column], limit)
    return allowed
