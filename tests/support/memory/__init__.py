"""Recall, summaries and topics over a real store, and what may be wrong in their logs."""
