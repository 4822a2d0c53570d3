"""When a failed call is repeated."""

import pytest

from klaw.llm.errors import ProviderError, ProviderMalformed, ProviderNetworkError, ProviderRefused, ProviderTimeout
from klaw.llm.providers.http import BACKOFF, parse_retry_after, pause_before_retry


def limited(retry_after_s: float | None, retryable: bool = True) -> ProviderRefused:
    return ProviderRefused("x", status=429, retryable=retryable, retry_after_s=retry_after_s)


@pytest.mark.parametrize("error", [ProviderTimeout("x"), ProviderNetworkError("x"), limited(None)])
def test_pauses_double_with_full_jitter_up_to_a_cap(error: ProviderError) -> None:
    assert [pause_before_retry(error, attempt, 0.5) for attempt in range(6)] == [0.5, 1, 2, 4, 4, 4]
    assert pause_before_retry(error, 1, 0.0) == 0
    assert pause_before_retry(error, 1, 0.75) == 1.5
    assert pause_before_retry(error, 10_000, 1.0) == BACKOFF.most_s


@pytest.mark.parametrize("error", [ProviderMalformed("x"), ProviderError("x"), limited(None, retryable=False)])
def test_what_will_not_pass_is_not_repeated(error: ProviderError) -> None:
    assert pause_before_retry(error, 0, 0.5) is None


def test_retry_after_is_obeyed_unless_it_is_too_long() -> None:
    assert pause_before_retry(limited(7.0), 0, 0.0) == 7.0
    assert pause_before_retry(limited(7.0), 0, 0.5) == 7.5
    assert pause_before_retry(limited(0.0), 0, 0.5) == 0.5
    assert pause_before_retry(limited(3600.0), 0, 0.0) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0.5", 0.5),
        ("-2", 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:05 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:30 -0000", 20.0),
        ("Thu, 99 Jan 1970 00:00:30 GMT", None),
    ],
)
def test_reading_retry_after(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, 10.0) == seconds
