"""Summaries of the older parts of segments, made in the background."""
