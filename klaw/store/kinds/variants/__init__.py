"""Variants of chats: their branches, and replacing messages by others."""
