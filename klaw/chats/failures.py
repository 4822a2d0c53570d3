"""What a turn that failed tells its user. Pure."""

from klaw.errors import ConfigError, KlawError, ProviderError, StorageFull


def describe_failure(error: Exception) -> tuple[str, str]:
    """Error code and what to tell the user whose turn it was. Never quotes unknown errors."""
    match error:
        case ProviderError():
            code, text = error.code, error.told()
        case StorageFull():
            code, text = "storage_full", "the disk is full or read-only, the answer could not be stored"
        case ConfigError():
            code, text = "config", str(error)
        case KlawError():
            code, text = "failed", "the answer could not be made"
        case _:
            code, text = "internal", "an internal error occurred; the log has its place"
    return code, f"{text}. Your message is kept: send another one or /retry to try again."
