"""Topics in a prompt: what fits, what is left out, and that nothing is said twice."""

import json
from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from klaw.context.assemble import TOPICS_SHARE, Guard, assemble, plan
from klaw.context.explain import explain
from klaw.context.inputs import Budget
from klaw.context.topics import GAP, HEADER, MAX_MESSAGE_CHARS, Present, pack, without
from klaw.domain import tokens
from klaw.domain.message import Message, Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.domain.search import Decision
from klaw.domain.topic import ChosenTopics, Fate, Topic, TopicCandidate, TopicId, TopicLookup
from tests.context.unit.test_assemble import MET, recalled, snapshot
from tests.support.stores import dialogue, stored

NOBODY = Present(rowids=frozenset())


def candidate(
    number: int, messages: Sequence[Message], *, summary: str = "About pies.", worths: Sequence[float] = (), **changes
) -> TopicCandidate:
    topic = Topic(
        id=TopicId(number),
        user=LOCAL_USER,
        chat=chat_id(LOCAL_USER, "main"),
        summary=summary,
        general=False,
        messages=len(messages),
        chars=sum(len(each.content) for each in messages),
        first_rowid=1,
        last_rowid=9,
        first_at="2025-05-01T10:00:00.000Z",
        last_at="2025-05-01T11:30:00.000Z",
        created_at="2025-05-01T12:00:00.000Z",
        updated_at="2025-05-01T12:00:00.000Z",
        consolidated=True,
        facts=True,
    )
    made = TopicCandidate(
        topic=topic,
        score=1.0,
        cosine=0.9,
        words_rank=1,
        message_rank=1,
        shared_words=1,
        fate=Fate.CHOSEN,
        place=number,
        messages=tuple(messages),
        worths=tuple(worths),
    )
    return attrs.evolve(made, **changes)


def chosen(*candidates: TopicCandidate) -> ChosenTopics:
    return ChosenTopics(asked=TopicLookup.SEARCHED, candidates=candidates)


def test_a_topic_that_fits_is_shown_whole() -> None:
    said = [stored(1, "Who bakes pies?"), stored(2, "Пироги печёт\n\nбабушка.", role=Role.ASSISTANT)]
    packed = pack(chosen(candidate(1, said)), NOBODY, 200)
    assert packed.text.split("\n") == [
        HEADER,
        "[topic, 2025-05-01 10:00 to 2025-05-01 11:30, chat main] About pies.",
        "  [user] Who bakes pies?",
        "  [assistant] Пироги печёт бабушка.",
    ]
    assert (packed.whole, packed.fates) == ({1, 2}, {1: Fate.CHOSEN})


def test_of_a_longer_topic_the_messages_that_matter_are_shown_with_marks() -> None:
    said = dialogue(30, "some words to fill a line of talk about nothing")
    worths = [3.0 if number == 12 else 0.0 for number in range(1, 31)]
    (shown,) = pack(chosen(candidate(1, said, worths=worths)), NOBODY, 110).shown
    assert shown.lines[0].endswith("of 30 messages] About pies.")
    assert {11, 12} <= set(shown.kept)  # it, and the one after it
    assert GAP in shown.lines
    assert shown.left_out == 30 - len(shown.kept)


def test_a_very_long_message_is_not_said_to_be_shown_in_full() -> None:
    long = stored(1, "начало " + "слово " * 1000 + "конец")
    (shown,) = pack(chosen(candidate(1, [long])), NOBODY, 2000).shown
    assert (shown.whole, shown.part) == ((), (1,))
    assert shown.lines[1].startswith("  [user] начало")
    assert shown.lines[1].endswith("конец")
    assert len(shown.lines[1]) < MAX_MESSAGE_CHARS + 40


def test_no_more_is_read_of_huge_topics_than_is_shown(monkeypatch) -> None:
    """Putting a prompt together runs on the event loop."""
    huge = candidate(1, [stored(n, "слово " * 20_000) for n in range(1, 40)])
    many = candidate(2, dialogue(2_000, "some words to fill a line of talk about nothing"))
    read: list[int] = []
    estimate = tokens.estimate
    monkeypatch.setattr(tokens, "estimate", lambda text: read.append(len(text)) or estimate(text))
    packed = pack(chosen(huge, many), NOBODY, 1000)
    assert len(packed.shown) == 2
    assert sum(read) < 200_000
    assert max(read) < MAX_MESSAGE_CHARS + 100  # and line ends are looked for in no more


def test_an_excerpt_stands_for_the_messages_and_is_one_line() -> None:
    said = dialogue(4)
    (shown,) = pack(chosen(candidate(1, said, excerpt="the\n[topic] essence " * 50)), NOBODY, 100).shown
    assert shown.excerpt
    assert len(shown.lines) == 2
    assert shown.lines[1].startswith("  [excerpt] the [topic] essence")
    assert shown.whole == ()


def test_what_is_there_is_left_out() -> None:
    said = dialogue(4)
    whole = pack(chosen(candidate(1, said)), Present(rowids=frozenset({1, 2, 3, 4})), 500)
    assert (whole.text, whole.fates) == ("", {1: Fate.IN_CONTEXT})
    (part,) = pack(chosen(candidate(1, said)), Present(rowids=frozenset({3, 4})), 500).shown
    assert (part.whole, part.present, part.left_out) == ((1, 2), 2, 0)
    assert GAP not in part.lines


def test_what_a_summary_tells_is_not_summarised_again() -> None:
    said = dialogue(4)
    summarised = Present(rowids=frozenset(), summarised=(chat_id(LOCAL_USER, "main"), 1, 9))
    (shown,) = pack(chosen(candidate(1, said)), summarised, 500).shown
    assert not shown.summary
    assert shown.lines[0].endswith("chat main]")
    assert len(shown.lines) == 5
    elsewhere = Present(rowids=frozenset(), summarised=(chat_id(LOCAL_USER, "other"), 1, 9))
    assert pack(chosen(candidate(1, said)), elsewhere, 500).shown[0].summary
    assert pack(chosen(candidate(1, said)), summarised, 45).fates == {1: Fate.OVER_BUDGET}


TOPICS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 60), st.integers(0, 200)), min_size=1, max_size=8, unique_by=lambda x: x[0]),
        st.integers(0, 300),
        st.integers(0, 200),
    ),
    max_size=5,
)


@given(TOPICS, st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)), st.integers(0, 600), st.booleans())
def test_whatever_is_chosen_fits_and_says_nothing_twice(
    drafts, there: set[int], later: set[int], max_tokens: int, told: bool
) -> None:
    candidates = [
        candidate(
            number,
            [stored(rowid, "слово " * (length // 6) + "x") for rowid, length in sorted(messages)],
            summary="a " * (summary // 2) + "summary",
            worths=[float(rowid % 3) for rowid, _ in sorted(messages)],
            excerpt="e" * excerpt if excerpt > 150 else "",
        )
        for number, (messages, summary, excerpt) in enumerate(drafts, 1)
    ]
    mine = (chat_id(LOCAL_USER, "main"), 1, 30) if told else None
    present = Present(rowids=frozenset(there), summarised=mine)
    packed = pack(chosen(*candidates), present, max_tokens)
    more = Present(rowids=frozenset(there | later), summarised=mine)
    pruned = without(packed, more)
    for layer, seen in ((packed, present), (pruned, more)):
        assert layer.tokens <= max_tokens or not layer.shown
        assert tokens.estimate(layer.text) <= layer.tokens
        assert not layer.whole & seen.rowids
        assert set(layer.fates) == {each.topic.id for each in candidates}
        assert {each.id for each in layer.shown} == {one for one, fate in layer.fates.items() if fate is Fate.CHOSEN}
        lines = layer.text.split("\n")[1:]
        assert all(line.startswith(("[topic, ", "  [user] ", "  [excerpt] ")) or line == GAP for line in lines)
    assert pruned.tokens <= packed.tokens
    assert without(packed, present) == packed


# -- in the context ----------------------------------------------------------------------------------------------------


def with_topics(history: list[Message], max_tokens: int = 300, **changes):
    made = snapshot(history, **changes)
    return attrs.evolve(made, settings=attrs.evolve(made.settings, topics_max_tokens=max_tokens))


def test_topics_stand_before_the_summary_and_behind_what_does_not_change() -> None:
    planned = plan(with_topics(dialogue(4), summaries=(MET,), summarised_to=1))
    old = candidate(7, [stored(500, "Grandmother bakes pies.")])
    context = assemble(planned, chosen=chosen(old))
    system = context.messages[0]
    names = [layer.name for layer in context.layers]
    assert names[:4] == ["system_prompt", "core_memory", "topics", "summary"]
    assert system.stable_chars == system.content.index(HEADER) - 2
    without_any = assemble(planned, chosen=chosen())
    assert without_any.messages[0].stable_chars == len(without_any.messages[0].content)
    receipt = explain(planned, context)
    assert receipt["topics"]["candidates"][0]["rowids"] == [500]
    assert receipt["topics"]["tokens"] == context.topics.tokens
    assert "bakes" not in json.dumps(receipt)
    assert "topics" not in explain(planned, assemble(planned))


def test_room_that_topics_do_not_use_is_the_windows_and_nothing_falls_between() -> None:
    """The window with topics is no longer than without; what they push out can be recalled."""
    history = dialogue(40, "some words to fill the line, and a few more of them")
    settled = snapshot(history, window=40)
    budget = attrs.evolve(settled.budget, context_tokens=1000, reply_reserve_tokens=100)
    usable = budget.usable
    settled = attrs.evolve(settled, budget=budget)
    auto = attrs.evolve(settled, settings=attrs.evolve(settled.settings, topics_max_tokens=5000))
    planned = plan(auto)
    assert planned.topics_tokens == int(usable * TOPICS_SHARE)
    assert planned.guard is Guard.SEARCH
    assert assemble(planned, chosen=chosen()).window == assemble(plan(settled)).window
    old = candidate(7, [stored(500 + n, f"Grandmother bakes pie number {n}.") for n in range(30)])
    full = assemble(planned, chosen=chosen(old))
    assert full.topics.shown
    assert full.tokens <= usable
    assert len(full.window) < len(history)
    assert planned.search_end_seq <= full.window[0].seq or full.window[0].seq <= planned.window[0].seq


def test_recall_drops_what_a_topic_shows_in_full() -> None:
    planned = plan(with_topics(dialogue(30), has_older=True))
    shown, other = stored(500, "Grandmother bakes pies."), stored(501, "The train leaves at nine.")
    context = assemble(planned, recalled(shown, other), chosen(candidate(7, [shown])))
    assert [each.decision for each in context.recalled.candidates] == [Decision.IN_TOPIC, Decision.NEAR]
    assert context.messages[0].content.count("Grandmother") == 1


def test_memory_never_makes_a_prompt_longer_than_it_may_be() -> None:
    """A small model with tools, and prompt files that are long: recall and topics share what room there is."""
    planned = plan(
        with_topics(
            dialogue(20),
            max_tokens=100_000,
            has_older=True,
            system_prompt="You are Klaw. " * 40,
            tools_tokens=400,
            budget=Budget(context_tokens=2048, reply_reserve_tokens=1024),
        )
    )
    assert planned.guard is Guard.SEARCH
    assert (planned.topics_tokens > 80, planned.recall_tokens > 80) == (True, True)
    many = [candidate(n, [stored(500 + 20 * n + m, "Пироги " * 9) for m in range(9)]) for n in range(1, 6)]
    full = [stored(900 + n, "The train leaves at nine.") for n in range(9)]
    kept = full[: planned.recall_tokens // (full[0].tokens + 4)]
    context = assemble(planned, recalled(*kept), chosen(*many))
    assert context.tokens <= planned.snapshot.budget.usable


SIZES = st.sampled_from([1, 5, 60, 400])


@given(
    st.sampled_from([512, 1024, 2048, 4096, 8192]),
    st.sampled_from([0, 300, 1500]),
    st.sampled_from([0, 50, 1000, 100_000]),
    st.tuples(SIZES, SIZES, SIZES, SIZES, SIZES, SIZES),
    st.integers(0, 30),
    st.booleans(),
    st.data(),
)
def test_whatever_is_remembered_the_prompt_keeps_its_budget_and_says_nothing_twice(
    context_tokens: int, tools: int, most: int, sizes: tuple[int, ...], said: int, older: bool, data: st.DataObject
) -> None:
    prompt, core, summary, question, line, told = sizes
    history = dialogue(said, "some words of talk " * line)
    told_of = tuple([attrs.evolve(MET, text="They met. " * summary)] if older else [])
    planned = plan(
        with_topics(
            history,
            max_tokens=most,
            has_older=older,
            system_prompt="You are. " * prompt,
            core_memory="- name: Ann " * core,
            summaries=told_of,
            pending=(stored(1000, "What is my dog called? " * question),),
            tools_tokens=tools,
            budget=Budget(context_tokens=context_tokens, reply_reserve_tokens=1024),
        )
    )
    # Messages of the window, of the part before it, and of other chats.
    pool = {each.rowid: each for each in history} | {
        n: stored(n, f"message {n} " + "told " * told) for n in range(40, 60)
    }
    rowids = st.sampled_from(sorted(pool))
    found = data.draw(st.lists(rowids, max_size=8, unique=True)) if planned.guard is Guard.SEARCH else []
    left, kept = planned.recall_tokens, []
    for message in (pool[rowid] for rowid in found):
        if message.tokens + 4 <= left:
            left -= message.tokens + 4
            kept.append(message)
    free = iter(data.draw(st.permutations(sorted(pool))))
    topics = [
        candidate(n, [pool[rowid] for rowid in sorted(next(free) for _ in range(size))], summary=f"Topic {n}.")
        for n, size in enumerate(data.draw(st.lists(st.integers(1, 4), max_size=5)), 1)
        if size
    ]
    context = assemble(planned, recalled(*kept), chosen(*topics))
    bare = assemble(planned)
    assert context.tokens <= max(planned.snapshot.budget.usable, bare.tokens)
    assert context.topics.tokens <= planned.topics_tokens
    shown = [each.rowid for each in context.window]
    shown += [each.message.rowid for each in context.recalled.kept]
    shown += sorted(context.topics.whole)
    assert len(shown) == len(set(shown))
