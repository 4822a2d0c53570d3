"""The `klaw` command: commands made of operations, and those that need no server."""
