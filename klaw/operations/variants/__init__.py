"""Variants of a chat's messages."""

from klaw.operations.variants import vary

__all__ = ["vary"]
