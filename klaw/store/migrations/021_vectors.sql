-- Vectors of messages and their codes. Earlier versions made these tables with the first vectors: what is there stays.
--
-- A vec0 table has the dimension of one model. This is that of the default one; for another, the embedder makes the table
-- again before it stores the first vector (klaw/store/search/vectors.py), as it does whenever the model changes.
CREATE VIRTUAL TABLE IF NOT EXISTS vec_messages USING vec0 (
    chat_key INTEGER PARTITION KEY, seq INTEGER, embedding float[384] distance_metric=cosine, chunk_size=32
);
-- Blocks of codes, each of one chat (klaw/store/search/vector_codes.py).
CREATE TABLE IF NOT EXISTS vec_blocks (
    block    INTEGER PRIMARY KEY,
    chat_key INTEGER NOT NULL,
    user_id  TEXT NOT NULL,
    used     INTEGER NOT NULL,
    capacity INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS vec_blocks_by_chat ON vec_blocks (chat_key);
CREATE INDEX IF NOT EXISTS vec_blocks_by_user ON vec_blocks (user_id);
-- Apart from the counts: changing a row would write the whole block again.
CREATE TABLE IF NOT EXISTS vec_block_data (
    block   INTEGER PRIMARY KEY,
    records BLOB NOT NULL
) STRICT;
