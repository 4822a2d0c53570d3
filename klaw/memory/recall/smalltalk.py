"""Small talk that is made of words which elsewhere say something: "have a nice day", «как дела?». Pure.

``stopwords`` has the words that never say what a text is about. Those here do in company ("the job interview", "a song
for my sister") but not among themselves ("good job", "sing me a song"): a query without any heavier word recalls
nothing, unless it asks about the user ("What is my job?"). One heavier word does not make it more ("you rock", "can you
elaborate?") unless it is a question of something else than the model.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from klaw.store.tokenizer import stem, words

_ENGLISH = """
today today's tomorrow tonight week weekend month year day hour minute moment second sec time date morning evening
noon afternoon later soon next last first again back ahead wait stop start begin keep try retry repeat continue finish
end done ready example detail short shorter long longer brief briefly simple simpler simply easy easier hard clear
clearer sense mean meaning mind forget bad worse worst better best fun funny amazing awesome incredible brilliant
excellent fantastic terrific super beautiful interesting interested boring sad happy tired busy hungry sleepy love
like hate hope wish guess suppose think thought idea believe feel feeling know sure certain wonder agree disagree
absolutely definitely totally completely probably possibly perhaps maybe literally honestly seriously actually
basically really job work news weather music song story joke poem fact riddle quote word sentence text answer question
reply message language english french german spanish russian italian chinese japanese number robot bot ai human name
plan thing way kind sort type stuff part point problem issue trouble worry matter case fault wrong right correct
mistake error fair enough cheers congrats congratulations wow oops ouch yay hooray phew ugh meh huh eh aha btw omg idk
tbh imo brb ttyl gtg pls plz lmk np yw rofl xd merci danke gracias ciao adios hola bonjour salut see meet talk chat
speak hear listen look watch read say tell ask show give take bring help do make create write rewrite rephrase
translate summarize summarise explain describe draw sing count calculate spell convert generate compose play game care
luck fast slow slowly quick quickly little big old new different same other another don't doesn't didn't won't can't
couldn't isn't aren't wasn't i'm i'll i'd i've it's that's you're we're they're let's gotta gonna wanna merry specific
elaborate kidding sleep rock deal noted welcome hmmm monday tuesday wednesday thursday friday saturday sunday
christmas easter birthday holiday holidays
"""
_RUSSIAN = """
сегодня сегодняшнее завтра неделя выходные день дня дней час минута минутку секунда время времени утро вечер ночь
полдень позже скоро снова опять раз разок назад вперед следующий стоп стой хватит подожди погоди начни начинай
продолжи повтори повторите попробуй закончи готово готов пример подробнее подробно подробности деталь короче покороче
коротко длиннее проще попроще просто легко легче сложно понятнее яснее смысл вид виду иметь имеешь значит понимаю
понимаешь понять забудь забей неважно важно плохо хуже лучше лучший весело смешно забавно интересно интересное
интересный скучно грустно устал занят люблю любишь нравится нравлюсь ненавижу надеюсь думаю думаешь подумаю подумать
кажется знаю знать уверен правда правильно неправильно неправ ошибка ошибся прав точно определенно наверно наверное
возможно честно серьезно действительно вообще кстати дело дела работа новость новости новое нового погода погоду
музыка песня сказка история анекдот шутка стих стихи стихотворение факт загадка цитата слово предложение текст ответ
ответь вопрос сообщение язык английский французский немецкий испанский русский итальянский китайский японский число
робот бот человек имя звать зовут план идея штука способ тип часть проблема проблем беда вина поздравляю ура ой ух ого
ничего себе блин извини извините прости простите жаль помоги помог помогло помогла спс пжлст плз хз имхо пон увидимся
встретимся поговорим поговорить покажи дай дайте напиши перепиши перефразируй переведи объясни опиши нарисуй спой
посчитай сочини придумай умеешь уметь делаешь делать играть игра слушай смотри читай жду удачи молодец молодцы погнали
поехали договорились быстро быстрее медленно новый старый другой годится принято пойдет обожаю рад слышать уточни
уточните встречи встреча пора днем разницы обычно серьезен смешной быстрый лет понедельник вторник среда четверг
пятница суббота воскресенье рождество пасха рождения праздником праздник
"""

_ABOUT_US = re.compile(
    r"""\b(?:my|mine|our|ours|we|us|i|i'm|i've|remember|earlier|before|again|last|previous|said|told|discussed|talked
      |мой|моя|моё|мое|мои|моей|моего|моему|моих|мне|меня|мной|мы|нас|нам|наш\w*|я|раньше|ранее|снова|опять|помнишь
      |прошл\w+|говорил\w*|обсуждал\w*|сказал\w*)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_QUESTION = re.compile(
    r"""[?？]|^\W*(?:what|who|whom|whose|where|when|which|why|how|did|do|does|is|are|was|were|have|has|remind|recall
      |что|кто|кого|кому|где|куда|когда|почему|зачем|как|какой|какая|какое|какие|сколько|чей|чья|напомни)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_AGAIN = re.compile(r"\b(?:again|last|снова|опять)\b", re.IGNORECASE)
_TO_THE_MODEL = re.compile(
    r"\b(?:you|your|yours|ты|тебя|тебе|тобой|твой|твоя|твоё|твое|твои|вы|вас|ваш\w*)\b", re.IGNORECASE
)
_ON_A_TOPIC = re.compile(
    r"\b(?:about|regarding|concerning|tell|show|find|search|look\ up|remind"
    r"|про|о|об|обо|насч[её]т|расскажи|покажи|найди|вспомни|напомни)\b",
    re.IGNORECASE,
)


def is_about_us(text: str, begin: int = 0) -> bool:
    """Whether a text speaks of the user or of what was said."""
    return _ABOUT_US.search(text, begin) is not None


def is_light(text: str, content_stems: Iterable[str]) -> bool:
    """Whether a query is small talk although it has content words.

    Args:
        text: the query.
        content_stems: stems of its content words.
    """
    contents = set(content_stems)
    heavy = contents - _light_stems()
    asks, about_us = _QUESTION.search(text) is not None, is_about_us(_AGAIN.sub("", text))
    if not heavy:
        return not (asks and about_us)
    if len(heavy) > 1 or _ON_A_TOPIC.search(text):
        return False
    if asks:
        return _TO_THE_MODEL.search(text) is not None and not about_us
    # "Kazan" is a topic, "you rock" a remark; "the gate code" has another word that says something.
    return len(contents) == 1 and len(text.split()) > 1


@lru_cache(maxsize=1)
def _light_stems() -> frozenset[str]:
    return frozenset(stem(word) for text in (_ENGLISH, _RUSSIAN) for word in words(text))
