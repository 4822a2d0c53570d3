"""Vectors: what of a text is embedded, and the actor that does it."""
