"""The passages of documents, as they are searched: in the bases of which a user is a member."""

import json
from collections.abc import Collection, Sequence

import apsw
import attrs

from klaw.domain.knowledge import BaseId, DocumentId, Passage
from klaw.domain.names import UserId
from klaw.domain.search import FoundPassage
from klaw.store import rows
from klaw.store.changes import Kind
from klaw.store.kinds.knowledge.documents import StoredPassage

PASSAGE: Kind[StoredPassage] = Kind(
    what="passage",
    plural="passages",
    cls=StoredPassage,
    table="kb_passages",
    id="rowid",
    full_text=True,
    vectors="vec_kb_passages",
    vector_mark="vector_model",
)


@attrs.frozen(kw_only=True)
class PassageScope:
    """Bases of which the user is a member, or only some documents of these."""

    user: UserId
    bases: Collection[BaseId]
    documents: Collection[DocumentId] | None = None

    @property
    def bindings(self) -> dict[str, str]:
        """What binds ``KEYS`` and ``ROWS``."""
        return {
            "user": self.user,
            "bases": json.dumps(list(self.bases)),
            "documents": json.dumps(list(self.documents or ())),
        }


_IN_BASES = "IN (SELECT value FROM json_each(:bases))"
_MEMBERS = "CROSS JOIN kb_members AS m ON m.base_id = d.base_id AND m.user_id = :user"
KEYS = f"""
SELECT b.rowid AS base_key FROM kb_members AS m CROSS JOIN kb_bases AS b ON b.id = m.base_id
WHERE m.user_id = :user AND m.base_id {_IN_BASES}
"""  # noqa: S608 - constant parts
"""The keys of a scope's bases."""
ROWS = f"""
SELECT p.rowid FROM json_each(:documents) AS j CROSS JOIN kb_documents AS d ON d.id = j.value
{_MEMBERS} CROSS JOIN kb_passages AS p ON p.document_id = d.id WHERE d.base_id {_IN_BASES}
"""  # noqa: S608 - constant parts
"""The row ids of a scope's documents' passages."""


def count(connection: apsw.Connection, scope: PassageScope) -> int:
    """How many passages the bases of a scope have."""
    query = f"""
    SELECT coalesce(sum(d.passages), 0) FROM ({KEYS}) AS k JOIN kb_bases AS b ON b.rowid = k.base_key
    JOIN kb_documents AS d ON d.base_id = b.id
    """  # noqa: S608 - constant parts
    return int(connection.execute(query, scope.bindings).get)


_READ = f"""
SELECT {rows.columns(Passage, "p")}, p.rowid, d.base_id, d.source_id, d.id, d.name, d.title
FROM json_each(:rowids) AS r CROSS JOIN kb_passages AS p ON p.rowid = r.value
CROSS JOIN kb_documents AS d ON d.id = p.document_id {_MEMBERS}
WHERE d.base_id {_IN_BASES} AND (:all OR d.id IN (SELECT value FROM json_each(:documents)))
ORDER BY r.key
"""  # noqa: S608 - constant parts
_found = rows.reader(FoundPassage)


def read(connection: apsw.Connection, rowids: Sequence[int], scope: PassageScope) -> list[FoundPassage]:
    """Passages of a scope by their row ids, in the given order; what is gone is left out."""
    bound = {**scope.bindings, "rowids": json.dumps(list(rowids)), "all": scope.documents is None}
    return [_found(row) for row in connection.execute(_READ, bound)]
