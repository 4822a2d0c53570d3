"""Klaw: a memory-first personal chat agent in one Trio process."""

__version__ = "0.1.0"
