"""How long tests wait for what must come."""

HANG_S = 600.0
"""Deadline against hanging only, for waits in real time: at least ten times what any of them takes on two idle cores.
No test says with it how quick something is."""
