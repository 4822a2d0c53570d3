"""Context assembly: pure functions from a snapshot to a request and its receipt. No I/O, no trio, no apsw."""
