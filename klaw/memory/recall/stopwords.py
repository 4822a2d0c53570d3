"""Words that say nothing about what a text is about: function words and small talk, English and Russian, and the
commonest of languages whose words are not set apart (Chinese, Japanese, Korean, Thai, a few of their neighbours).

A query made of nothing else ("ok, thanks a lot!", «ну ладно, спасибо», "好的，谢谢", "👍") recalls nothing. Words are
compared in their index form (folded, stemmed), so one entry covers its inflections. In a run of characters without
spaces, small talk counts when the whole run is made of it, and function words are where the run is cut into parts.

Some small talk is made of words that mean something in company ("the job interview") but not among themselves ("good
job", "have a nice day"): without any heavier word a query recalls nothing, unless it asks about the user ("What is my
job?"). One heavier word changes that only in a question about something else than the model.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from klaw.store.engine import tokenizer
from klaw.store.engine.tokenizer import stem, words

_ENGLISH = """
a about above after again against all also am an and any anyone anything are as at be because been before being below
between both but by can cannot could did do does doing done down during each either else ever every few for from further
get gets getting give gives go goes going gone got had has have having he her here hers herself him himself his how i if
in into is it its itself just know let like made make makes many may maybe me might mine more most much must my myself
never no nor not nothing now of off on once one only or other our ours out over own please put rather really said same
say says see she should since so some someone something still such take tell than that the their theirs them then there
these they thing things this those though through to too under until up upon us use used very want was we well went were
what whatever when where whether which while who whom whose why will with within without would yes yet you your yours
ve ll re don didn doesn isn aren wasn weren won wouldn shouldn couldn haven hasn t s d m
"""
_ENGLISH_SMALL_TALK = """
ok okay okey yeah yep yup nope nah sure thanks thank thx ty welcome hi hello hey bye goodbye morning evening night
good great nice cool fine awesome perfect wonderful lovely haha hahaha lol lmao hmm hm um uh oh ah wow alright right
got sounds help helped helping appreciate glad continue proceed lot bit course worries problem cheers kidding funny
sorry agreed exactly indeed true
"""
_RUSSIAN = """
а без более больше будем будет будете будешь буду будут бы был была были было быть в вам вами вас ваш ваша ваше ваши
ведь весь во вот все всегда всего всем всех вы где да даже для до его ее ей ему если есть еще же за здесь и из или им
ими их к как какая какие какой каким каких ко когда который которая которые кто кого куда ли либо лишь мне много мной
могу может можно мой моя мое мои мы на над надо нам нами нас наш наша наше наши не него нее ней нельзя нет ни них но ну
о об обо один одна одно он она они оно от очень перед по под после потом потому почему при про с сам сама сами само свой
своя свое свои себе себя сейчас со так такая также такие такой там те тебе тебя тем теперь то тобой тогда того тоже
только том тот тут ты у уже хочу хотел хотела чего чей чем через что чтоб чтобы чье чья эта эти это этого этой этом этот
мог могла могли скажи расскажи напомни знаешь нужно какое кем чему сколько я твой твоя твое твои
"""
_RUSSIAN_SMALL_TALK = """
ок окей ага угу спасибо благодарю пожалуйста привет здравствуй здравствуйте пока хай доброе добрый утро вечер день
спокойной ночи хорошо ладно ясно понятно понял поняла круто класс классно супер отлично прекрасно здорово давай
продолжай дальше хаха ахах лол хм эм ого точно верно конечно согласен согласна неа рад рада помощь сделаем сделать
сделай нормально большое за что
"""


_FUNCTION_RUNS = """
的 了 吗 呢 吧 啊 呀 嘛 是 我 你 您 他 她 它 们 很 我们 你们 他们 她们 咱们 这 那 这个 那个 这些 那些 这里 那里 什么
怎么 怎样 怎么样
为什么 哪 哪里 哪儿 哪个 哪些 谁 多少 是不是 有没有 在哪里 在哪儿 可以 告诉 知道 一下 请问 什么时候 时候 記得 记得
還 还是 因为 所以 但是
這 這個 那個 這裡 那裡 什麼 怎麼 怎麼樣 為什麼 哪裡 哪裏 誰 嗎 們 我們 你們 他們 告訴 什麼時候 時候
です ですか でした でしたか でしょう でしょうか ます ますか ました ましたか ません ませんか ください くださいね
ている ていた ています
これ それ あれ この その あの ここ そこ どこ いつ だれ 誰 何 なに なん なんですか どう どうやって どの どれ どんな
なぜ いくつ いくら
ある あります ありますか いる います いますか という って について とは には では から まで より こと もの 私 僕 俺
あなた わたし
教えて おしえて 覚えて ね よ
อะไร ที่ไหน ไหน เมื่อไหร่ เมื่อไร ใคร ทำไม อย่างไร ยังไง เท่าไหร่ เท่าไร ครับ ค่ะ ผม ฉัน ดิฉัน คุณ เรา เขา เธอ ของ
ที่ และ หรือ เป็น อยู่
ไหม มั้ย แล้ว กับ นี้ นั้น
ແມ່ນ ຫຍັງ ຢູ່ ໃສ ຂອງ ຂ້ອຍ ເຈົ້າ តើ អ្វី ខ្ញុំ នៅ របស់ ឯណា ဘာ ဘယ် လဲ ကျွန်တော် ကျွန်မ
입니다 입니까 습니다 습니까 합니다 합니까 했습니다 인가요 나요 무엇 뭐예요 뭐야 어디 언제 누구 어떻게 어떤 우리 당신
그것 이것
"""
_HIRAGANA = "".join(map(chr, range(0x3041, 0x3097)))
_JAPANESE_PARTICLES = "はがをにでともへやかねよの"
_KOREAN_PARTICLES = """
에서는 에게서 으로는 이라고 에서 에게 한테 으로 이랑 하고 까지 부터 처럼 보다 은 는 이 가 을 를 에 의 도 로 과 와 만
"""
_SMALL_TALK_RUNS = """
好 好的 好吧 好啊 好呀 嗯 嗯嗯 哦 噢 喔 哈 哈哈 哈哈哈 嘿 嘿嘿 对 对的 對 对啊 不 不是 不对 不用 不客气 不客氣 没事
没关系 没问题 沒問題
沒關係 行 可以 谢谢 謝謝 多谢 感谢 你好 您好 大家好 早 早安 早上好 晚安 晚上好 下午好 再见 再見 拜拜 明白 明白了
知道了 知道 了解 收到
继续 繼續 太好了 太棒了 真棒 真的 不错 厉害 当然 當然 同意 辛苦 非常 麻烦 抱歉 对不起 對不起 是的 没有 有
はい いいえ うん ううん ええ いや ありがとう ありがとうございます ありがとうございました どうも おはよう
おはようございます こんにちは
こんばんは おやすみ おやすみなさい さようなら またね じゃあね よろしく よろしくお願いします お願いします お願い
ごめん ごめんなさい すみません
了解 了解です わかった わかりました 分かった 分かりました 承知しました なるほど そう そうだね そうですね そうなんだ
すごい すごいね
いいね いいですね 大丈夫 大丈夫です もちろん やった 笑 続けて なし オッケー オーケー
ขอบคุณ ขอบคุณมาก มาก สวัสดี หวัดดี ใช่ ไม่ใช่ ไม่ ได้ โอเค ตกลง เข้าใจ ดี ดีมาก ดีจัง เยี่ยม ลาก่อน ขอโทษ ไม่เป็นไร
ราตรีสวัสดิ์ ฮ่า นะ คะ จ้า จ้ะ
ຂອບໃຈ ສະບາຍດີ ຫຼາຍໆ ອໍເຄ អរគុណ សួស្តី ជំរាបសួរ ច្រើន បាទ ចាស ကျေးဇူးတင်ပါတယ် ကျေးဇူး မင်္ဂလာပါ ဟုတ်ကဲ့ ခင်ဗျာ ရှင်
네 예 응 어 아니 아니요 아니오 고마워 고마워요 감사 감사합니다 감사해요 안녕 안녕하세요 안녕히 계세요 가세요 잘 자요
잘자 좋아 좋아요 좋습니다 그래
그래요 알겠습니다 알겠어요 알았어 오케이 미안 미안해요 죄송합니다 괜찮아 괜찮아요 물론 물론이죠 정말 진짜 ㅋㅋ
ㅋㅋㅋ ㅎㅎ ㅎㅎㅎ ㅇㅇ ㅇㅋ
"""


@lru_cache(maxsize=1)
def _empty_stems() -> frozenset[str]:
    lists = (_ENGLISH, _ENGLISH_SMALL_TALK, _RUSSIAN, _RUSSIAN_SMALL_TALK)
    return frozenset(stem(word) for text in lists for word in text.split())


@lru_cache(maxsize=1)
def _small_talk_at() -> tuple[re.Pattern[str], ...]:
    """Patterns of the words that a run without content is made of, one for each length."""
    said = set((_SMALL_TALK_RUNS + _FUNCTION_RUNS).split())
    lengths = sorted({len(word) for word in said})
    return tuple(re.compile(_any_of(" ".join(word for word in said if len(word) == length))) for length in lengths)


def _is_small_talk(run: str) -> bool:
    """Whether a run is made of such words. Each place is looked at once: a pattern that repeats them tries every way to
    cut the run, and so never ends on a long one."""
    ends = {0}
    for place in range(len(run)):
        if place > max(ends):
            return False
        if place in ends:
            ends.update(found.end() for each in _small_talk_at() if (found := each.match(run, place)))
    return len(run) in ends


def _any_of(text: str) -> str:
    """Pattern of any of the words of a list, the longest first, never ending inside a character."""
    ordered = sorted(set(text.split()), key=len, reverse=True)
    return f"(?:{'|'.join(map(re.escape, ordered))})(?!{tokenizer.MARK})"


@lru_cache(maxsize=1)
def _cuts() -> re.Pattern[str]:
    """Where runs are cut."""
    hangul, hiragana = "[\uac00-\ud7a3]", f"[{_HIRAGANA}]"
    particle = f"(?<!{hiragana})[{_JAPANESE_PARTICLES}](?!{hiragana})"  # one that stands between other characters
    ending = f"(?<={hangul}{{2}})(?:{'|'.join(_KOREAN_PARTICLES.split())})$"
    return re.compile(f"{_any_of(_FUNCTION_RUNS)}|{particle}|{ending}")


def _parts(run: str) -> Iterator[str]:
    """What is left of a run between its function words, in pairs of characters; nothing when it is all small talk."""
    if _is_small_talk(run):
        return
    begin = 0
    for function_word in (*_cuts().finditer(run), None):
        end = function_word.start() if function_word else len(run)
        part = run[begin:end]
        if not (len(part) == 1 and part in _HIRAGANA):
            yield from tokenizer.pairs(part)
        begin = function_word.end() if function_word else end


def search_words(text: str) -> Iterator[str]:
    """The words of a query as written, in order, as the full-text index can find them, also function words, small talk
    and emoji; runs in pairs of characters. For a search that somebody asked for."""
    for segment in tokenizer.segments(text):
        if segment.is_run:
            yield from tokenizer.pairs(segment.text)
        else:
            yield segment.text


MAX_CHARACTERS = 8_000
"""Only the beginning of a longer text is read for its content words: this runs on the event loop."""


def content_words(text: str, limit: int) -> list[str]:
    """The words of a text that say what it is about, as written, each stem once, at most ``limit``, in order. Of runs
    without spaces it has pairs of characters. Emoji are no content, nor is a text of a single letter ("k")."""
    found: dict[str, str] = {}
    if len(text) == 1 and not tokenizer.is_lone(text) and not text.isdigit():
        return []
    for word in _said(text[:MAX_CHARACTERS]):
        found.setdefault(stem(word), word)
        if len(found) == limit:
            break
    return list(found.values())


def _said(text: str) -> Iterator[str]:
    empty = _empty_stems()
    for segment in tokenizer.segments(text):
        if segment.is_run:
            yield from _parts(segment.text)
        elif stem(segment.text) not in empty and any(map(str.isalnum, segment.text)):
            yield segment.text


_LIGHT_ENGLISH = """
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
_LIGHT_RUSSIAN = """
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
    r"""[?？]|^\W*(?:(?:by|at|in|on|for|from|with|to|of|since|until|до|с|со|в|во|на|у|к|ко|о|об|от|из|за|по|для)\s+)?
      (?:what|who|whom|whose|where|when|which|why|how|did|do|does|is|are|was|were|have|has|remind|recall
      |что|чего|чему|чем|ч[её]м|кто|кого|кому|кем|ком|где|куда|откуда|когда|почему|зачем|как|как(?:ой|ая|ое|ие|ую)
      |как(?:ого|ому|им|ом|их|ими)|котор\w+|сколько|чей|чь[яёеи]|напомни)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_AGAIN = re.compile(r"\b(?:again|last|снова|опять)\b", re.IGNORECASE)
_TO_THE_MODEL = re.compile(
    r"\b(?:you|your|yours|ты|тебя|тебе|тобой|твой|твоя|твоё|твое|твои|вы|вас|ваш\w*)\b", re.IGNORECASE
)
_NAMES = re.compile(
    r"\b(?:(?:my|our)(?!\s+(?:god|goodness|gosh|pleasure|apolog))"
    r"|(?<!боже\ )мо(?:й|я|ё|е|и|ю|его|ей|ему|их|им|ими)|наш\w*|имя|имени|(?<!добрый\ )день)\b",
    re.VERBOSE | re.IGNORECASE,
)
"""Before what is asked for by its name alone: "my address", «имя кошки», «день переезда»."""
_ON_A_TOPIC = re.compile(
    r"\b(?:about|regarding|concerning|tell|show|find|search|look\ up|remind"
    r"|про|о|об|обо|насч[её]т|расскажи|покажи|найди|вспомни|напомни)\b",
    re.IGNORECASE,
)


def is_about_us(text: str, begin: int = 0) -> bool:
    """Whether a text speaks of the user or of what was said."""
    return _ABOUT_US.search(text, begin) is not None


def is_light(text: str, content_stems: Iterable[str]) -> bool:
    """Whether a query is small talk although it has content words, whose stems are given."""
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
    return len(contents) == 1 and len(text.split()) > 1 and not _NAMES.search(text)


@lru_cache(maxsize=1)
def _light_stems() -> frozenset[str]:
    return frozenset(stem(word) for text in (_LIGHT_ENGLISH, _LIGHT_RUSSIAN) for word in words(text))
