"""Of what a provider says, the caller sees all but keys, and a log only words that can hold nobody's message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.llm.providers.refusals import MAX_CHARS, loggable, masked, shown

KEY = "sk-proj-Zx81QwPa7LmN00vTyU"
SECRETS = (KEY, "Bearer hidden-value-77")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (f"Incorrect API key provided: {KEY}.", "Incorrect API key provided: ***"),
        ("Incorrect API key provided: sk-pr***************vTyU. See docs", "Incorrect API key provided: *** See docs"),
        (f"key {KEY.upper()} and {KEY[5:11]}", "key *** and ***"),
        (f"Неверный ключ: {KEY[:12]}…, проверьте", "Неверный ключ: ***, проверьте"),
        ("header Authorization: Bearer hidden-value-77 refused", "header Authorization: Bearer *** refused"),
        ("missing bearer token", "missing bearer token"),
        ("модель не найдена", "модель не найдена"),
    ],
)
def test_keys_are_masked_in_whole_and_in_part(text: str, seen: str) -> None:
    assert shown(text, SECRETS) == seen


@given(st.text(max_size=60), st.text(max_size=60), st.integers(0, len(KEY) - 4), st.integers(4, len(KEY)))
def test_no_part_of_a_key_survives(before: str, after: str, start: int, length: int) -> None:
    part = KEY[start : start + length]
    seen = masked(f"{before} {part} {after}", [KEY]).lower()
    assert not any(KEY[at : at + 4].lower() in seen for at in range(len(KEY) - 3))


def test_a_short_key_is_masked_too() -> None:
    assert masked("key abc is wrong", ["abc"]) == "key *** is wrong"
    assert masked("key is wrong", [""]) == "key is wrong"


def test_what_is_shown_is_one_short_printable_line() -> None:
    seen = shown("a\r\n\x1b[31mb\u202e\x00  c" + " x" * 5000, [])
    assert seen.startswith("a [31mb c x")
    assert len(seen) <= MAX_CHARS
    assert seen.isprintable()


CANARIES = ("zucchini-canary-5150", "канарейка Жёлудь 7731", "My PIN is 4711", "моя тайна")


@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize(
    "template", ["The model does not exist: {}", 'invalid request body {{"content": "{}"}}', "{} is not supported"]
)
def test_a_log_gets_no_word_of_the_prompt(template: str, canary: str) -> None:
    seen = loggable(template.format(canary)).lower()
    assert seen
    private = set(canary.lower().replace("-", " ").split()) - {"is", "my"}
    assert not private & set(seen.split())
    assert not any(char.isdigit() for char in seen)


def test_a_log_gets_the_reason() -> None:
    assert loggable("Incorrect API key provided: ***. You can find your key at https://x.y/z.") == (
        "Incorrect API key provided You can … your key at …"
    )
    assert loggable("模型不存在") == ""
    assert loggable("The") == ""


@given(st.text(max_size=300))
def test_any_text_can_be_shown(text: str) -> None:
    for made in (shown(text, SECRETS), loggable(text)):
        assert len(made) <= MAX_CHARS
        assert made.isprintable()
