"""What goes wrong when a model is asked: one class for each situation that a caller can tell apart."""

from klaw.errors import KlawError


class ProviderError(KlawError):
    """The LLM could not answer. Its text may reach everybody and every log: of the provider's words it has only
    ``known_words``, which cannot hold anybody's message (``refusals.loggable``). ``told()`` has all of them (``said``),
    for the caller's user. ``origin`` is model and address, ``hint`` what to look at."""

    code = "llm_failed"
    retryable = True
    origin = ""
    hint = ""
    said = ""
    known_words = ""

    def __str__(self) -> str:
        return self._text(self.known_words)

    def told(self) -> str:
        """The text with all of the provider's words."""
        return self._text(self.said)

    def _text(self, said: str) -> str:
        text = super().__str__()
        text = f'{text}: "{said}"' if said else text
        text = f"{self.origin}: {text}" if self.origin else text
        return f"{text} ({self.hint})" if self.hint else text


class ProviderTimeout(ProviderError):
    """The provider sent nothing for longer than the configured time."""

    code = "llm_timeout"


class ProviderNetworkError(ProviderError):
    """The connection broke."""

    code = "llm_unreachable"


class ProviderUnreachable(ProviderNetworkError):
    """No connection could be made."""


class ProviderRefused(ProviderError):
    """The provider answered with the HTTP status ``status``. ``param``: the member of the request that it names."""

    code = "llm_refused"
    param = ""

    def __init__(self, message: str, *, status: int, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class RateLimited(ProviderRefused):
    """Too many requests or tokens in a short time; ``retry_after_s`` is how long the provider asks to wait."""

    code = "llm_rate_limited"


class OverQuota(ProviderRefused):
    """The account has no credit or its spending limit is reached; no waiting cures that."""

    code = "llm_over_quota"


class ContextTooLong(ProviderRefused):
    """The prompt does not fit into the context; ``context_tokens`` is its length if the caller planned with another."""

    code = "context_too_long"
    context_tokens: int | None = None


class ProviderPaused(ProviderError):
    """The provider failed so often that it is left alone for a while; nothing was sent."""

    code = "llm_paused"


class ProviderNotSetUp(ProviderError):
    """A key of the provider cannot be looked up; nothing was sent. The text names the key of the configuration."""

    code = "llm_not_set_up"
    retryable = False


class ProviderMalformed(ProviderError):
    """The provider's answer is not what its protocol promises."""

    code = "llm_malformed"


class BadCall(ProviderMalformed):
    """The model's tool call cannot be read; when it is told so, it may write another one."""

    retryable = False


class OverBudget(ProviderError):
    """A daily spending limit would be passed; nothing was sent."""

    code = "llm_over_budget"
    retryable = False
