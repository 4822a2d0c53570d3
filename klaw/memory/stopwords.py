"""Words that say nothing about what a text is about: function words and small talk, English and Russian.

A query made of nothing else ("ok, thanks a lot!", «ну ладно, спасибо») recalls nothing. Compared in their index form
(folded, stemmed), so one entry covers its inflections.
"""

from functools import lru_cache

from klaw.store.tokenizer import stem, words

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
мог могла могли скажи расскажи напомни знаешь нужно какое кем чему
"""
_RUSSIAN_SMALL_TALK = """
ок окей ага угу спасибо благодарю пожалуйста привет здравствуй здравствуйте пока хай доброе добрый утро вечер день
спокойной ночи хорошо ладно ясно понятно понял поняла круто класс классно супер отлично прекрасно здорово давай
продолжай дальше хаха ахах лол хм эм ого точно верно конечно согласен согласна неа рад рада помощь сделаем сделать
сделай нормально большое за что
"""


@lru_cache(maxsize=1)
def _empty_stems() -> frozenset[str]:
    lists = (_ENGLISH, _ENGLISH_SMALL_TALK, _RUSSIAN, _RUSSIAN_SMALL_TALK)
    return frozenset(stem(word) for text in lists for word in text.split())


def content_words(text: str, limit: int) -> list[str]:
    """The words of a text that say what it is about, as written, each stem once, at most ``limit``, in order."""
    empty = _empty_stems()
    found: dict[str, str] = {}
    for word in words(text):
        form = stem(word)
        if form not in empty:
            found.setdefault(form, word)
            if len(found) == limit:
                break
    return list(found.values())
