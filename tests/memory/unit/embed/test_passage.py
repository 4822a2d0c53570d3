"""What of a message is embedded, and the id under which its vector is stored."""

from klaw.memory.embed.passage import CONTEXT_CHARACTERS, PassageText, passage, vectors_id


def test_a_short_message_is_read_after_the_end_of_the_one_before_it() -> None:
    assert passage("Да, в пятницу.", "Ты придёшь?") == PassageText("Да, в пятницу.", "Ты придёшь?")
    assert passage("Yes.", None) == PassageText("Yes.")
    assert passage("Yes.", "x" * 100_000 + "?") == PassageText("Yes.", "x" * (CONTEXT_CHARACTERS - 1) + "?")


def test_a_long_message_needs_no_context() -> None:
    text = "a long story " * 40
    assert passage(text, "Tell me!") == PassageText(text)


def test_vectors_of_klaw_0_1_whose_id_was_that_of_the_model_are_not_compared_with_these() -> None:
    assert vectors_id("m@1+abc") == "m@1+abc/2"
