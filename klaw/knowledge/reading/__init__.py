"""From a file to passages: a child process reads a document of any known format, and what it says is cut."""
