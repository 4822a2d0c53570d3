"""Which questions refer to what was said before ("tell me more about the second", «а что насчёт второго?»), and with
what they are searched: in English and Russian. Pure."""

import re

import attrs

from klaw.domain.text import one_line, tagged
from klaw.llm.ask_json import Text
from klaw.memory.recall.query import content_words, is_light
from klaw.store.engine.tokenizer import stem

SHORT, FEW, LONG = 2, 5, 40
"""A question of so few content words goes on with an earlier one; more stand for themselves whatever pronoun is among
them; more whatever word it opens with."""
MAX_ASKED, MAX_ANSWERED = 300, 600
"""Characters of the earlier question and of its answer that are searched with."""
MAX_QUERY = 2_000
"""Characters of a question as it is searched, shown and stored."""

_REFERS = re.compile(
    r"""\b(?:it|its|this|these|those|that(?=\W*$|\s+(?:one|is|was|so|does|did|means?|case|point|clause))|they|them|their|he|she|him|her|his|there|then|such|same|former|latter|above
    |previous|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last\ one|other\ one|another|more|else
    |\d+(?:st|nd|rd|th)
    |он|она|оно|они|его|ее|её|их|им|ими|ему|ей|нем|нём|ней|них|него|нее|неё|ним|ними|это|этот|эта|эти|этого|этой|этому
    |этом|этих|этим|этими|(?:тот|та|те|того|той|тому|том|тех|тем|теми)(?!,|\s*что)|там|тогда|такой|такая|такое|такие|также|тоже
    |перв\w{2,3}|втор\w{2,3}|трет\w{2,4}|четверт\w{2,3}|четвёрт\w{2,3}|пят(?:ый|ая|ое|ого|ой|ому|ом)|шест(?:ой|ая|ое|ого|ому|ом)
    |седьм\w{2,3}|восьм(?:ой|ая|ое|ого|ому|ом)|девят(?:ый|ая|ое|ого|ой|ому|ом)|десят(?:ый|ая|ое|ого|ой|ому|ом)
    |последн\w{2,3}|предыдущ\w{2,3}|друг(?:ой|ая|ое|ого|ому|ом|ие|их)|остальн\w{2,3}|подробн\w{2,4}|еще|ещё
    |\d+-?(?:й|я|е|го|му|ой|ая|ое))\b""",
    re.VERBOSE | re.IGNORECASE,
)
_OPENS = re.compile(
    r"""\W*(?:and|but|so|or|also|what\ about|how\ about|what\ if|why|how\ so|which\ one|tell\ me\ more|go\ on|continue
    |in\ detail|more\b
    |а|и|но|или|а\ что|что\ насч[её]т|как\ насч[её]т|почему|зачем|расскажи\ (?:\w+\ )?(?:подробн|больше|ещ[её])
    |подробнее|поподробнее|ещ[её]|продолжи|продолжай|дальше|уточни)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_ASKS = re.compile(
    r"""\?|\b(?:tell|show|explain|describe|list|compare|more|continue|go\ on|what|which|who|when|where|why|how
    |расскажи\w*|покажи\w*|объясни\w*|опиши\w*|перечисли\w*|сравни\w*|подробн\w+|поподробн\w+|уточни\w*|продолж\w+|дальше
    |ещ[её]|что|как\w*|кто|когда|где|почему|зачем|сколько)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_ORDINALS = (
    ("first", "перв"), ("second", "втор"), ("third", "трет"), ("fourth", "четв"), ("fifth", "пят"), ("sixth", "шест"),
    ("seventh", "седьм"), ("eighth", "восьм"), ("ninth", "девят"), ("tenth", "десят"),
)  # fmt: skip
_ORDINAL = re.compile(
    r"""\b(?:(?P<word>first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth
        |перв\w{2,3}|втор\w{2,3}|трет\w{2,4}|четв[её]рт\w{2,3}|пят\w{2,3}|шест\w{2,3}|седьм\w{2,3}|восьм\w{2,3}|девят\w{2,3}|десят\w{2,3})
    |(?P<last>last|latter|последн\w{2,3})|(?P<number>\d{1,2})(?:st|nd|rd|th|-?(?:й|я|е|го|му|м|ой|ая|ое|ом)))\b
    |(?:\#|№|\bpoint\s|\bitem\s|\bnumber\s|\bпункт\w{0,2}\s|\bномер\w{0,2}\s)\s?(?P<sign>\d{1,2})\b""",
    re.VERBOSE | re.IGNORECASE,
)
_ITEM = re.compile(r"^[ \t]{0,8}(?:[-*+•–]|\d{1,2}[.)])[ \t]+(?=\S)", re.MULTILINE)


@attrs.frozen
class Pair:
    asked: str
    answered: str


@attrs.frozen
class Rewritten:
    """What the model is asked for (``kb.rewrite``)."""

    question: Text = ""


def refers(question: str) -> bool:
    """Whether a question is only understood with what was said before; never small talk."""
    words = content_words(question, LONG)
    asks = _ASKS.search(question) is not None
    if not asks and is_light(question, map(stem, words)):
        return False  # thanks, that helps
    if len(words) >= LONG:
        return False
    if _OPENS.match(question) and (asks or words):
        return True
    if asks and len(words) <= FEW and _REFERS.search(question):
        return True
    return bool(words) and len(words) <= SHORT and asks and len(question.split()) <= 2 * SHORT


def query_of(question: str, last: Pair) -> str:
    """What a question that refers to the last pair is searched with."""
    parts = one_line(last.asked)[-MAX_ASKED:], meant(question, last.answered)[:MAX_ANSWERED], question.strip()
    return "\n".join(filter(None, parts))


def material(question: str, last: Pair) -> str:
    pair = f"[user] {one_line(last.asked)[:MAX_QUERY]}\n[assistant] {one_line(last.answered)[:MAX_QUERY]}"
    return f"{tagged('conversation', pair)}\n\n{tagged('question', one_line(question)[:MAX_QUERY])}"


def meant(question: str, answered: str) -> str:
    """The part of an answer that a question refers to: the second item of its list, else its beginning."""
    items = _items(answered)
    found = _ORDINAL.search(question)
    if found and items:
        place = _place(found)
        if place < len(items):
            return one_line(items[place])
    return one_line(answered)


def _place(found: "re.Match[str]") -> int:
    if found["last"]:
        return -1
    if number := found["number"] or found["sign"]:
        return int(number) - 1
    word = found["word"].lower().replace("ё", "е")
    return next(place for place, begins in enumerate(_ORDINALS) if word.startswith(begins))


def _items(answer: str) -> list[str]:
    found = list(_ITEM.finditer(answer))
    ends = [*(each.start() for each in found[1:]), len(answer)]
    items = (answer[each.end() : end] for each, end in zip(found, ends, strict=False))
    return [item.split("\n\n", 1)[0] for item in items]
