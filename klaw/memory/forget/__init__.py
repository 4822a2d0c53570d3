"""Forgetting: what goes, what stays, and the proof."""
