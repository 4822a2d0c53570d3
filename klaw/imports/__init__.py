"""Reading what other programs export: each format as one stream of chats and messages, whatever its size."""
