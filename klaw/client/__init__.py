"""The chat client: a connection that survives restarts of the server, and the terminal made on top of it."""
