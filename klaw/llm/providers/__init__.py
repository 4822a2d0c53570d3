"""Providers of language models over HTTP, and the APIs that they speak."""
