"""Chats: the directory, one actor a chat, debounce, turns, slash commands."""
