"""How damage of a database shows."""

import apsw

DAMAGED = "the database file is damaged; `klaw reindex --accept-differences` rebuilds it from the logs"
"""What a person is told."""
BROKEN_FILE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
"""Errors that nothing but a damaged file causes."""
DAMAGE = (
    apsw.NotADBError,
    apsw.CorruptError,
    apsw.FormatError,
    apsw.SQLError,
    apsw.IOError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.InternalError,
    apsw.TooBigError,
    apsw.NoFTS5Error,  # how an unreadable schema shows when the tokenizer is registered
    # Rows with values that Klaw never stores: no JSON, no known word, no text, no number.
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""Errors of SQLite, and of whoever reads what stands in damaged rows."""
