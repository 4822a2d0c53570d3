"""What a person is told of a file that was read, or was not."""

import attrs
import pytest

from klaw.domain.knowledge import BaseId, Document, DocumentId, DocumentProblem, DocumentState, SourceId, what_was_read

NAME = "a: b.pdf"
DOCUMENT = Document(id=DocumentId("d"), base=BaseId("b"), source=SourceId("s"), name=NAME, state=DocumentState.READ)
SCAN = "has pictures and no text: it may be a scan"


def problem(code, text):
    return DocumentProblem(code=code, text=f"{NAME}{text}")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"state": DocumentState.WAITING}, "It is being read."),
        ({"words": 5_100, "pages": 12}, "12 pages, 5,100 words"),
        ({"words": 3, "pages": 1}, "1 page, 3 words"),
        ({"words": 3, "problems": (problem("scan", f", page 2: {SCAN}"),)}, f"3 words (page 2: {SCAN})"),
        (
            {
                "state": DocumentState.FAILED,
                "problems": (
                    problem("no_text", f", pages 1 to 3: {SCAN}"),
                    problem("no_text", ": has no readable text"),
                ),
            },
            f"Not read: it {SCAN}",
        ),
        (
            {
                "state": DocumentState.FAILED,
                "problems": (problem("renamed", ": is PDF"), problem("encrypted", ": is protected: save it")),
            },
            "Not read: it is protected: save it",
        ),
        (
            {"state": DocumentState.FAILED, "problems": (problem("x", ": has an unknown format; known are: a, b"),)},
            "Not read: it has an unknown format",
        ),
    ],
)
def test_the_words(changed, told):
    assert what_was_read(attrs.evolve(DOCUMENT, **changed)) == told
