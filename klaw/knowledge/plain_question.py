"""What of a question says what to look for. Pure. How the answer is to look ("Answer in millions.", «Ответь списком.»)
and who is to give it ("You are an analyst.") is nothing that documents say, and would only draw the search aside."""

import re

_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-ZА-ЯЁ(«\"])")
_HOW = re.compile(
    r"""\W*(?:please\s+|пожалуйста,?\s+)?(?:
        (?:write|give|return|save|format|express|state|provide|list|enumerate|output)\b.*
            \b(?:answers?|format\w*|integer|float|decimal\w*|response|(?:in|as|within)\s+a\s+list)\b
        |answer\s+(?:in|as|with|the\s+following|what)\b|(?:your|the)\s+answer\s+(?:should|shall|must)\b
        |round\b|(?:return|give)\s+me\b|(?:assume|imagine|suppose)\s+(?:that\s+)?you\b|you\s+are\s+an?\b
        |(?:respond|calculate|compute|base|utilize)\b.*\b(?:answer|question|response|judg\w+|was\s+asked)\b
        |we\s+(?:need|want)\s+to\s+calculate\b|here['’]?s\s+the\s+question
        |(?:напиши|дай|верни|запиши|вырази|оформи)(?:те)?\b.*
            \b(?:ответ\w*|списком|формат\w*|цел\w+\s+числ\w+|в\s+виде\s+\w+)\b
        |ответ(?:ь|ьте)?\s+(?:в|во|на|как|по|одн\w+|кратко|коротко|списком|числом|дай|дайте|должен)\b
        |округли(?:те)?\b|представь(?:те)?,?\s+что\s+(?:ты|вы)\b|(?:ты|вы)\s*[-–—]\s*\w+
    )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_FISCAL_YEAR = re.compile(r"\bFY\s?['’]?(\d{4}|\d{2})\b")


def plain_question(text: str) -> str:
    """A question without the sentences that say only how to answer, if others are left; FY2018 and FY18 as 2018."""
    kept = [each for each in _SENTENCE.split(text) if each.rstrip().endswith("?") or not _HOW.match(each)]
    return _FISCAL_YEAR.sub(lambda year: f"20{year[1]}"[-4:], " ".join(kept) or text)
