"""What is remembered: facts, people and topics; searching it, and trying what recall finds."""
