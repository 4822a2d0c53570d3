"""The save-claim guard: does an answer say that something was saved, remembered or scheduled just now? Pure.

Asked only about a turn in which nothing was. A false alarm makes Klaw contradict a right answer, so in doubt there is
no claim: none is found in questions, negations, conditions, offers and promises, in what somebody else said (quotes,
code), and in what was saved some time ago. English and Russian, by patterns: a model's judgement would cost a call for
each answer."""

# ruff: noqa: E501, ISC004 - a pattern is read as one piece
import re
from collections.abc import Iterable, Iterator
from typing import Literal

import attrs
import structlog

from klaw.domain.message import OF_CLIENT, Message, MessageKind
from klaw.toolbox.spec import Permission, Toolbox, Trail

HINT = (
    "[Klaw: you say that you saved, remembered or scheduled something, but in this turn no tool has done so. If it is"
    " to be kept, call the tool for it now. If not, answer again without saying so.]"
)
"""Sent to the model once, and not stored."""
_NOTE = "(Nothing was saved.)"
_NOTE_RU = "(Ничего не было сохранено.)"

MAX_CHARACTERS = 20_000

log = structlog.get_logger("klaw.turn")


def resumed_trail(unfinished: Iterable[Message], toolbox: Toolbox) -> Trail:
    """The trail of a turn that goes on with an interrupted one's tool messages. Of a tool that is gone, or a
    program's own, the worst."""
    specs = {spec.name: spec for spec in toolbox.all()}
    trail = Trail()
    for message in unfinished:
        if message.type is not MessageKind.TOOL_RESULT:
            continue
        name = str(message.metadata.get("name"))
        spec = specs.get(name) if message.metadata.get("origin") != OF_CLIENT else None
        trail.outside |= spec is None or spec.reaches_out
        trail.sources.restore(message.metadata, message.content)
        if not message.metadata.get("error"):
            trail.succeeded(name, changes=spec is None or spec.permission is not Permission.READ)
    return trail


@attrs.define
class Claims:
    trail: Trail
    account: Literal["corrected", "noted"] | None = None
    """For the receipt: an answer claimed a write that did not happen, and was made again, or got a note."""

    def object_to(self, answer: str) -> str | None:
        """An objection that lets the model correct its answer by calling a tool; None for an answer that may stand."""
        if self.trail.wrote or not claims_saving(answer):
            return None
        self.account = "corrected"
        return HINT

    def settle(self, answer: str) -> str:
        """The answer, with a note below it if it still claims what is not so."""
        if self.trail.wrote or not claims_saving(answer):
            return answer
        self.account = "noted"
        log.info("save_claim_noted")
        return with_note(answer)


def claims_saving(answer: str) -> bool:
    """Whether an answer says that something has been saved, remembered or scheduled now."""
    if len(answer) > MAX_CHARACTERS:
        answer = f"{answer[: MAX_CHARACTERS // 2]}\n{answer[-MAX_CHARACTERS // 2 :]}"
    return any(_claims(sentence) for sentence in _sentences(_QUOTED.sub(" … ", answer)))


def with_note(answer: str, note: str = _NOTE, russian: str = _NOTE_RU) -> str:
    """An answer with an honest note below it, in the answer's language."""
    cyrillic = sum("\u0400" <= each <= "\u04ff" for each in answer)
    said = russian if 2 * cyrillic > sum(map(str.isalpha, answer)) else note
    return f"{answer.rstrip()}\n\n{said}".lstrip()


_CUT = {
    "length": (
        "(The answer was cut off: it is as long as answers may be.)",
        "(Ответ обрезан: достигнут предел длины.)",
    ),
    "content_filter": (
        "(The provider's filter stopped the answer here.)",
        "(Здесь ответ остановил фильтр провайдера.)",
    ),
}
_BROKEN_OFF = ("(The provider broke the answer off here.)", "(Здесь провайдер оборвал ответ.)")
_ENDS = frozenset({"length", "content_filter", "insufficient_system_resource", "abort", "aborted", "network_error"})
_ENDS |= {"cancelled", "canceled", "timeout", "time_limit", "interrupted", "incomplete"}


def cut_because(finish_reason: str) -> str | None:
    return finish_reason if finish_reason in _ENDS else None


def with_end(answer: str, finish_reason: str) -> str:
    """An answer; one that ended before its end with a note that says so."""
    if cut_because(finish_reason) is None:
        return answer
    return with_note(answer, *_CUT.get(finish_reason, _BROKEN_OFF))


_QUOTED = re.compile(
    r"""```.*?(?:```|\Z) | ~~~.*?(?:~~~|\Z) | `[^`\n]*` | ^[ \t]*>.*?$
    | «[^»]{0,2000}» | “[^”]{0,2000}” | „[^“”]{0,2000}[“”] | "[^"\n]{0,2000}" | ‘[^’\n]{0,2000}’(?!\w) | (?<!\w)'[^'\n]{0,2000}'(?!\w)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_SENTENCE = re.compile(r"[^.!?…\n]+[.!?…]*")
_MARKS = re.compile(r"[*_#]+")


def _sentences(text: str) -> Iterator[str]:
    for match in _SENTENCE.finditer(_MARKS.sub("", text).replace("’", "'")):
        sentence = " ".join(match[0].split())
        if sentence and "?" not in sentence:
            yield sentence


def _claims(sentence: str) -> bool:
    if _PAST.search(sentence):
        return False
    for pattern in (*_ENGLISH, *_RUSSIAN):
        for match in pattern.finditer(sentence):
            clause = _clause(sentence, match)
            if not _DENIED.search(clause) and not _IDIOM.match(sentence[match.end("verb") :]):
                return True
    return False


def _clause(sentence: str, match: "re.Match[str]") -> str:
    """The part of the sentence that the verb stands in, as far as the verb and what directly follows it."""
    begin = max((sentence.rfind(mark, 0, match.start("verb")) for mark in ",;:—–("), default=-1) + 1
    # "If I have saved it, …" but not "If you like, I have saved it".
    return sentence[begin : match.end("verb")] + _AFTER.match(sentence[match.end("verb") :])[0]  # type: ignore[index]


_AFTER = re.compile(r"(?:\s+бы\b)?")

_PAST = re.compile(
    r"""\b(?:already|earlier|before|previously|yesterday|ago|formerly|once|back\ then|at\ the\ time|originally
    |last\ (?:time|week|month|year|night|summer|winter|spring|autumn|fall|monday|tuesday|wednesday|thursday|friday
    |saturday|sunday)|when\ you\ (?:told|asked|said|mentioned)|in\ (?:our|a)\ (?:last|previous|earlier)
    |уже|раньше|ранее|вчера|позавчера|прежде|давно|назад|тогда|когда-то|однажды
    |в\ прошл(?:ый|ом|ую|ой)|на\ прошлой|прошл(?:ым|ой)\ \w+|когда\ (?:ты|вы)\ (?:сказал|говорил|просил|упомянул)\w*)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_DENIED = re.compile(
    r"""(?:n't|\b(?:not|never|no|nothing|none|neither|nor|without|cannot|unable|if|whether|unless|until|once|after|when
    |whenever|as\ soon\ as|as\ though|would|could|should|might|pretend|imagine|suppose|whatever|everything\ that|than|what
    |не|ни|ничего|нельзя|без|если|когда|как\ только|чтобы|будто|бы|ли|пока|что-то|то,\ что))\b""",
    re.VERBOSE | re.IGNORECASE,
)
_IDIOM = re.compile(
    r"\s+(?:you\b|us\b|the\ (?:day|best|world|princess|king|city)\b|(?:some|a\ lot\ of|much|so\ much)\ (?:time|money)\b"
    r"|(?:time|money|lives|energy)\b|by\b)".replace(r"\ ", " "),
    re.IGNORECASE,
)

_PLACE = (
    r"(?:(?:your|my|the|our|core|long-term|personal)\s+)*"
    r"(?:memory|memories|notes?|calendar|reminders?|schedule|profile|to-?do(?:\s+list)?|task\s+list|memory\.md)\b"
)
_THING = r"(?:reminder|alarm|timer|task|event|note|appointment|meeting|fact|cron\s+job)s?"
_NOW = r"(?:(?:now|just|also|successfully|gone\s+ahead\s+and|safely|carefully|duly)\s+)*"
_ABOUT = r"(?:it|this|that|these|those|them|your|the|all|everything|both)\b"
_OPENING = (
    r"^\W*(?:(?:ok|okay|done|got\s+it|great|sure|sure\s+thing|all\s+right|alright|perfect|noted|yes|yep|yeah|thanks"
    r"|thank\s+you|understood|all|and|it's|of\s+course|absolutely|will\s+do|no\s+problem|no\s+worries|don't\s+worry|successfully|now)"
    r"\b\W*)*"
)
_ENDED = r"(?=\W*$|\s*[,;:—–(]|\s+(?:to|in|into)\s+" + _PLACE + r"|\s+for\s+(?:you|later|next|future|the\s+future)\b)"

_MADE = r"(?P<verb>set|scheduled|created|saved|added)(?=\W*$|\s+(?:for|to|at|on)\b|\s*[,:;—–])"

_ENGLISH = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # I've saved …; I have written … down
        rf"\b(?:i|we)(?:'ve|\s+have)\s+{_NOW}(?P<verb>saved|stored|remembered|noted|recorded|memori[sz]ed|scheduled"
        rf"|written\s+(?:(?:it|this|that)\s+)?down|noted\s+down|made\s+a\s+(?:mental\s+)?note|jotted|logged)\b",
        # I saved it; and saved it
        rf"\b(?:i|we|i've\s[^,;]*\band)\s+{_NOW}(?P<verb>saved|stored|recorded|memori[sz]ed|scheduled|noted)\s+(?={_ABOUT}|a\b|an\b)",
        rf"\b(?:i|we)(?:'ve|\s+have)?\s+{_NOW}(?P<verb>wrote\s+(?:it|this|that)\s+down|made\s+a\s+note\s+of)\b",
        # I've added it to your calendar; I put it in my notes; I've updated your profile
        rf"\b(?:i|we)(?:'ve|\s+have)?\s+{_NOW}(?P<verb>added|put|written|wrote|entered|saved)\s+(?:[^.,;]{{1,80}}\s)?(?:to|in|into|on)\s+{_PLACE}",
        rf"\b(?:i|we)(?:'ve|\s+have)?\s+{_NOW}(?P<verb>updated)\s+{_PLACE}",
        # I've set a reminder; I created an event
        rf"\b(?:i|we)(?:'ve|\s+have)?\s+{_NOW}(?P<verb>set(?:\s+up)?|created|added|put\s+in)\s+(?:(?:a|an|the|your|you|new|daily|weekly|recurring|another)\s+)+(?:\w+\s+)?{_THING}\b",
        # It has been saved; your preference has been noted
        rf"\b(?:it|this|that|they|everything|all|your(?:\s+\w+){{1,3}}|the\s+(?:{_THING}|information|info|details?|preferences?|date|birthday|data))"
        rf"(?:\s+has|\s+have|'s|'ve)\s+{_NOW}been\s+{_NOW}(?P<verb>saved|stored|recorded|scheduled|noted|remembered|memori[sz]ed|set(?:\s+up)?|created|added\s+to\s+{_PLACE})\b",
        rf"\b(?:it|this|that)(?:'s|\s+is)\s+{_NOW}(?P<verb>saved|stored|scheduled){_ENDED}",
        rf"\b(?:it|this|that)(?:'s|\s+is)\s+{_NOW}(?P<verb>in|on)\s+my\s+(?:memory|notes)\b",
        # Saved! Done, saved. Reminder set for 9.
        rf"{_OPENING}(?P<verb>saved|stored|remembered|memori[sz]ed|scheduled|recorded|added\s+to\s+{_PLACE}){_ENDED}",
        rf"{_OPENING}(?:(?:your|the|a)\s+)?(?:reminder|alarm|timer)s?\s+(?:has\s+been\s+|is\s+)?(?:now\s+)?{_MADE}",
        rf"{_OPENING}{_THING}\s+{_MADE}",
        rf"{_OPENING}(?:(?:core|long-term|my|your)\s+)*memory\s+(?:has\s+been\s+|is\s+)?(?:now\s+)?(?P<verb>updated|saved)\b",
    )
)

_RU_PLACE = (
    r"(?:(?:твою|твои|твой|ваш[уи]?|свою|свои|мою|мои|основную|долгосрочную|долговременную)\s+)*"
    r"(?:памят[ьи]|заметк[иу]|календарь|расписани[ея]|список(?:\s+дел)?|напоминани[ея]|профиль|план|memory\.md)"
)
_RU_THING = r"(?:напоминани[ея]|будильник|таймер|задач[уиа]|событи[ея]|заметк[уиа]|встреч[уа])"
_RU_KEPT = r"запомнила?|сохранила?|записала?|зафиксировала?|запланировала?"
_RU_PUT = (
    rf"(?:добавила?|занесла|занёс|занес|внесла|внёс|внес|положила?|поместила?)(?=\s+(?:[^.,;]{{1,80}}\s)?в\s+{_RU_PLACE})"
    rf"|(?:поставила?|создала?|установила?|настроила?|добавила?|завела?|завёл)(?=\s+(?:\w+\s+){{0,3}}{_RU_THING})"
    rf"|обновила?(?=\s+{_RU_PLACE})"
    r"|взяла?(?=\s+(?:это\s+)?на\s+заметку)|отметила?(?=\s+(?:это\s+)?(?:у\s+)?себ[яе]|\s+(?:это\s+)?для\s+себя)"
)
_RU_FILLER = (
    r"(?:хорошо|ок|окей|ладно|понял[аи]?|понятно|принято|принял[аи]?|готово|отлично|конечно|да|ага|спасибо|замечательно"
    r"|прекрасно|супер|договорились|сделано|разумеется|всё|все|это|так|и|теперь|успешно|тоже|также|его|её|ее|их"
    r"|обязательно|не\s+волнуйся|не\s+переживай|не\s+беспокойтесь|без\s+проблем|ясно|класс|здорово|рад[а]?\s+помочь)"
)
_RU_OPENING = rf"^\W*(?:{_RU_FILLER}\b\W*)*"
_RU_ENDED = rf"(?=\W*$|\s*[,;:—–(]|\s+(?:в|во|на)\s+{_RU_PLACE}|\s+на\s+будущее)"

_RUSSIAN = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # Я запомнил …; я всё записала
        rf"\bя\s+(?:(?!не\b)\w+\s+){{0,3}}(?P<verb>{_RU_KEPT}|{_RU_PUT})\b",
        # Запомнил! Хорошо, сохранил. Твой день рождения запомнила
        rf"{_RU_OPENING}(?P<verb>{_RU_KEPT}|{_RU_PUT})\b",
        rf"{_RU_OPENING}(?:(?:тво[йяюеи]|ваш[уеи]?)\s+)?(?:день\s+рождения|имя|адрес|телефон|номер|пароль|код|предпочтени[ея]|просьбу|дату)"
        rf"\s+(?P<verb>{_RU_KEPT})\b",
        # Код 4815 — запомнил.
        rf"\s[—–-]\s*(?:я\s+)?(?P<verb>{_RU_KEPT})(?:\s+это)?\W*$",
        # Сохранено. Всё записано. Добавлено в память.
        rf"{_RU_OPENING}(?:(?:информация|данные|факт|заметка)\s+)?(?:успешно\s+|теперь\s+)*"
        rf"(?P<verb>сохранен[оаы]?|сохранён|записан[оаы]?|запомнено|зафиксирован[оаы]?|запланирован[оаы]?){_RU_ENDED}",
        rf"{_RU_OPENING}(?:\w+\s+){{0,3}}(?:успешно\s+)?(?P<verb>(?:добавлен|внесен|внесён|занесен|занесён|записан|сохранен|сохранён)[оаы]?)\s+в\s+{_RU_PLACE}",
        rf"{_RU_OPENING}(?:напоминани[ея]|будильник|таймер|задача)\s+(?:успешно\s+)?"
        rf"(?P<verb>установлен[оаы]?|создан[оаы]?|поставлен[оаы]?|добавлен[оаы]?|сохранен[оаы]?|запланирован[оаы]?|настроен[оаы]?)\b",
        rf"{_RU_OPENING}(?:основная\s+|моя\s+|долгосрочная\s+)*память\s+(?P<verb>обновлена)\b",
    )
)
