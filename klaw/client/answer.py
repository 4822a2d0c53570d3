"""Showing an answer once, though it comes twice: in pieces while it is made, and whole when it is stored. Pure."""


class Answer:
    """What was shown of one turn's answer so far."""

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self._shown = ""
        self._contradicted = False

    @property
    def begun(self) -> bool:
        """Whether any of it is on the screen."""
        return bool(self._shown)

    def piece(self, offset: int, text: str) -> str:
        """Take a streamed piece that begins ``offset`` characters into the answer; returns what to show of it.

        A piece that leaves a hole, or contradicts what was shown (the answer was begun again with another model),
        shows nothing; ``rest`` makes up for it, or a later piece that closes the hole.
        """
        known = len(self._shown) - offset
        if known >= 0 and self._shown[offset : offset + len(text)] != text[:known]:
            self._contradicted = True
        if known < 0 or self._contradicted:
            return ""
        added = text[known:]
        self._shown += added
        return added

    def rest(self, content: str) -> str:
        """What to show after the pieces so that the whole stored answer has been shown.

        If the pieces are no beginning of it, that is a line end and all of it.
        """
        for shown in (self._shown, self._shown.lstrip()):
            if content.startswith(shown):
                return content[len(shown) :]
        if self._shown.strip() == content.strip():
            return ""
        return f"\n{content}"
