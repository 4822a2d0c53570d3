"""Numbers of the pages that tools brought, and the links under an answer that cites them."""

import pytest

from klaw.agent.linked_answer import link_sources
from klaw.channels import matrix_html
from klaw.channels.markup import styled
from klaw.client.markdown import plain, render
from klaw.toolbox.web_sources import MOST, WebSources
from klaw.web.markdown import to_html

LIGHT = ("https://riga.example/light", "Lighthouse", "The lighthouse of Riga was built in 1818 by the harbour.")
MAYAK = ("https://riga.example/mayak", "Маяк", "Маяк в Риге построен в 1818 году на молу.")


def sources(*pages: tuple[str, str, str], after: int = 0) -> WebSources:
    made = WebSources(after=after)
    for page in pages or (LIGHT, MAYAK):
        made.add(*page, "c1")
    return made


def test_a_page_keeps_its_number_and_gathers_what_was_read_of_it() -> None:
    made = sources()
    assert made.add(LIGHT[0], "Lighthouse", "It is 31 m high, and white, and round.", "c2") == "[1]"
    assert made.brought_by("c1") == [(1, *LIGHT[:2]), (2, *MAYAK[:2])]
    assert made.brought_by("c2") == []
    assert link_sources("“It is 31 m high, and white, and round” [1]", made).removed == 0


def test_numbers_begin_behind_those_of_passages_and_end_where_marks_end() -> None:
    made = sources(after=3)
    assert list(made.texts) == [4, 5]
    last = [made.add(f"https://{number}.example/", "", "", "c") for number in range(MOST)]
    assert last[-6:] == [f"[{MOST}]", "", "", "", "", ""]


def test_an_interrupted_turn_takes_its_sources_up_again() -> None:
    made, again = sources(), WebSources()
    again.restore({"sources": [list(each) for each in made.brought_by("c1")]}, "[1] Lighthouse …")
    again.restore({}, "a result of another tool")
    assert again.cited({1, 2}) == made.cited({1, 2})
    assert again.add("https://new.example/", "", "", "c9") == "[3]"


@pytest.mark.parametrize(
    ("answer", "text", "end", "removed"),
    [
        ("Built in 1818 [1].", "Built in 1818 [1].", "[1] [Lighthouse](https://riga.example/light)", 0),
        ("В 1818 году [2].", "В 1818 году [2].", "[2] [Маяк](https://riga.example/mayak)", 0),
        ("So [1, 7] and so [9].", "So [1] and so.", "[1] [Lighthouse](https://riga.example/light)", 2),
        ("«Маяк в Риге построен совсем недавно» [2].", "«Маяк в Риге построен совсем недавно».", "", 1),
        ("Nobody is cited.", "Nobody is cited.", "", 0),
    ],
)
def test_only_pages_that_are_really_cited_are_linked(answer: str, text: str, end: str, removed: int) -> None:
    linked = link_sources(answer, sources())
    assert (linked.text, linked.end, linked.removed) == (text, f"\n\n{end}" if end else "", removed)
    assert linked.whole == f"{text}{linked.end}"


def test_marks_of_passages_stay_and_are_not_linked() -> None:
    linked = link_sources("From the base [1], from the web [2].", sources(LIGHT, after=1), {1: "a passage"})
    assert linked.whole == "From the base [1], from the web [2].\n\n[2] [Lighthouse](https://riga.example/light)"


def test_without_pages_nothing_is_touched() -> None:
    assert link_sources("A list [1] of the model's own [2024].", WebSources()).whole.startswith("A list [1]")


def test_a_hostile_title_and_address_stay_one_link() -> None:
    title = "x](javascript:alert(1)) \x1b[31m\u202e`b` <b>*[2]*\n\n# head"
    end = link_sources("So [1].", sources(("https://a.example/y)z(<", title, ""))).end
    assert end == "\n\n[1] [x)(javascript:alert(1)) b b(2) # head](https://a.example/y%29z%28%3C)"


def test_links_are_shown_by_every_client() -> None:
    text = link_sources("Built in 1818 [1]. В 1818 году [2].", sources()).whole
    for shown in (to_html(text, 9_000), matrix_html.to_html(text)):
        for url, title, _ in (LIGHT, MAYAK):
            assert f'href="{url}"' in shown
            assert f">{title}</a>" in shown
    rows = [plain(row) for row in render(text, 80)]
    assert rows[-2:] == [f"[{at}] {title} ({url})" for at, (url, title, _) in enumerate((LIGHT, MAYAK), 1)]
    links = [(told, each.value) for told, styles in styled(text).runs for each in styles if each.kind == "link"]
    assert links == [(title, url) for url, title, _ in (LIGHT, MAYAK)]
