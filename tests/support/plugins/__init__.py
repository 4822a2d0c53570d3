"""Plugins of pytest: all of them are loaded by tests/conftest.py."""
