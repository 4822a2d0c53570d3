"""What text Klaw accepts and keeps. Pure."""


def has_forbidden(text: str) -> bool:
    """Whether a text holds NUL or a lone surrogate: neither can be stored or sent as UTF-8 faithfully."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def clean(text: str) -> str:
    """A model's text with NUL and lone surrogates replaced by U+FFFD."""
    if not has_forbidden(text):
        return text
    return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
