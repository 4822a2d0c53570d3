"""SQL statements, each a named constant above the one function that uses it. All functions run in a worker thread."""
