"""The conversation of a model and its tools, for turns of chats and runs of tasks alike."""
