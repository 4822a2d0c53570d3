"""Frozen values that every layer shares: names, messages, turns, recalled hits. No I/O, no trio, no apsw."""
