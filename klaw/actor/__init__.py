"""The actor kernel: mailboxes, reply cells, supervision, threads, clock and log fields. Knows nothing about chats."""
