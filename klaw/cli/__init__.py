"""The `klaw` command: one module per command, with no logic of its own."""
