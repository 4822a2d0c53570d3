"""Embeddings, recall, summaries, topics and facts."""
