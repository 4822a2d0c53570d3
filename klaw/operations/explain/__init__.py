"""What ``klaw receipt`` and ``klaw why`` say of turns and messages."""
