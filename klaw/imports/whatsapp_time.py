"""When it is, as telephones write it before a message of WhatsApp: in any locale's order, digits and words. Pure.

Dates are three numbers and times two or three, so a rule reads them. What needs a table are the words for the halves of
a day, which Unicode's CLDR has.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal, TypeAlias
from unicodedata import category, decimal, normalize

import attrs

Order: TypeAlias = Literal["dmy", "mdy", "ymd"]
PLACES: Mapping[Order, tuple[int, int, int]] = {"ymd": (0, 1, 2), "dmy": (2, 1, 0), "mdy": (2, 0, 1)}
"""Of year, month and day."""
FIRST_YEAR = 2009
"""There was no WhatsApp before."""
MARKS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
"""Directions of writing, which telephones put before and into lines."""
MOST_CHARS = 80
"""Of a date and a time."""
MOST_LETTERS = 30
_SPACE = r"[ \u00a0\u2000-\u200a\u202f\u3000]"
_BRACKET = re.compile(rf"[{MARKS}]*\[(?P<stamp>[^\]]{{6,{MOST_CHARS}}})\]{_SPACE}?(?P<rest>.*)", re.DOTALL)
_DASH = re.compile(rf"{_SPACE}[{MARKS}]*[-–—][{MARKS}]*{_SPACE}")
_COMMA = re.compile(rf"[:.]\w\w(?:[:.]\w\w)?(?:{_SPACE}?[^\W\d]{{1,20}})?,{_SPACE}")
_DATE = re.compile(
    r"(?P<era>[rh]|令和|平成|民[国國])?(?<!\d)(?P<a>\d{1,4})(?P<by> ?[./-] ?| ?[年년] ?)"
    r"(?P<b>\d{1,2}) ?[./\-月월] ?(?P<c>\d{1,4})(?!\d)"
)
_TIME = re.compile(r"(?<!\d)(\d{1,2}) ?[:.h時时點点시] ?(\d{1,2})(?: ?(?:[:.分분]|min) ?(\d{1,2}))?(?!\d)")
_BEFORE_NOON = """
    a aamulla aamup aamupäivällä adduha ag alfajiri am amvormittag an ankstāinan antemidí ap asubuhi atm aðmorgni
    aðnóttu banhaet bn braxkndaax canolnos comme damadrugada damanhã damañá de delamadrugada delamañana delmatin
    dienag dieoggend dimattina dimineața dinda dinotte dop dopol dopoldan dopoledne dopoludnia dopołdnja
    dopołedniŏ dumatin délelőtt ekuseni emesnatës emëngjesit enatës entathakusa eparadites ertalab fh fm form
    fọmọ́nin gauerdia geceyarısı gecə gecəyarı gh goizald goizaldeko goizeko goöň günortadanöň hajnal hatinggabi
    hengihengi hh hommikul hoseng iarmade ib ibikɛ̂glà icheheavo idiɓa im inthemorning isuk iđitbeaivet ka
    kangama karoon keskiyöllä keskööl ki kiroko kiɛmɛ́ɛm krn kíkíríg lamiezulnopții lb leebi lumalwak lwamilawu
    ma madalingaraw makeo mambia maná mat matin matinada matí mbaʼámbaʼ mbaꞌmbaꞌ meianoite mezzanotte
    middernacht middernag midn midnat midnatt midnight miezulnopții minuit mitjanit mitternacht miðnætti moies
    morg morgens muhi munkyo nachts naktis natt nd ngumaga norīta ntufat ntɔ́ngɔ́ nụtụtụ nửađêm od omformiddagen
    ommorgenen omnatten opoln opolnoci opolnoči opółnocy pagi pagisiang pamilau pd pg pgsg piopensuno ponoć
    priekšp priekšpusdienā priešpiet prijepodne przedpołudniem prīškpušdīnē pusnaktī påformiddagen påförm
    påförmiddagen påmorg påmorgenen påmorgonen pånatten půln půlnoc rano reggel rn rw rytas ráno rũ sa saaku
    saasitazausiku sabah safiya sf snachts sochtends sokallim soodo sub subaka subbaahi sáng sárúwá sübh səhər
    taparachu tengahmalam tesiran tifawt to too uhrvörmiddaachs ujutro ulloqeqqatatungaa uluchelo utuko vaasisu
    vidurnaktis vm vorm vormittags wd wichishu yarimtun yb ybore zdatazal zjut zjutraj zmu àárɔ̀ àárọ̀ éjfél öö
    öğledenönce ĩyakwakya ŋdi ǁgoagas ɛnkakɛnyá ʊshilèkʊboɖu πμ πρωί τοπρωί ам апоўначы дп наутро ночі ноќе
    обедтэикеле полн полночь полноќ полунощ поноћ преподне претпл претпладне пријеподне проб ранку сутринта
    таңкы таңғы то тң түнжарымы түнортосу утра ујутру шөнөдунд эи эртеңменен үө ӕмбисбоныразмӕ өглөө առավոտյան
    գիշերը գիշերվա կեսգիշեր կեսգիշերին בבוקר בוקר חצות לפנותבוקר פֿאַרמיטאָג آدھیرات اےایم بامداد بن تد ص صباحا
    صباحًا صبح صبحمنجهند صبحمیں غم فجرًا فيالصباح فيالمساء قبلازظهر قظ ليلاً نیمهشب چب چۈشتىنبۇرۇن ܩܛ ߛ एएम तडके
    पहाट पूर्वाह्न फुं बिहान भोर भ्यागा मध्यरात मध्यरात्र मध्यरात्रि येएम सकाळ सकाळीं सबेरे सवेर सुबह सुबुहजा
    এএম নুমাং ভোর ভোরবেলায় সকাল সকালবেলায় ਅੱਧੀਰਾਤ ਪੂਦੁ ਸਵੇਰੇ મધ્યરાત્રિ સવારે ଏଏମ அதிகாலை காலை நள்ளிரவு
    అర్ధరాత్రి ఉదయం ఎఎమ్ ಬೆಳಗ್ಗೆ ಮಧ್ಯರಾತ್ರಿ അർദ്ധരാത്രി പുലർച്ചെ രാവിലെ උදේ පාන්දර පෙව මැදියම මැදියමටපසු
    ก่อนเที่ยง เที่ยงคืน ในตอนเช้า ກ່ອນທ່ຽງ ຕອນເຊົ້າ ທ່ຽງຄືນ སྔཆ སྔདྲོ နံနက် သန်းခေါင်ယံ დილ დილით შუაღამეს ማለዶ
    ቀደምሰርምዕል ቅቀ በሌሊት እኩለሌሊት ጥዋት ጽባሕ ፋዱስጃብ ᏌᎾᎴ ᐁᒼ ᐊᒼ នៅពេលព្រឹក អធ្រាត្រ ᠦᠥ ᱥᱮᱛᱟᱜ ⵜⵉⴼⴰⵡⵜ 上午 凌晨 午前 午夜 早上
    朝早 清晨 真夜中 ꎸꄑ 아침 오전 자정 𐐰𐑋 𐑨𐑥 𞤢𞤰
"""
_AFTER_NOON = """
    p abends adhuhuri ak akasuba akşam akşamüstü aluula amiază amnamittag aprèsmidi arrats arratsaldeko atnight
    axşam axşamüstü aðkvöldi banringzgvaq baubaukndaax canoldydd carra ch chilo chiều cɛɛ́nko datarde delanoche
    delaprèsmidi delatarde delmediodía delpomeriggio desira dieaand diemiddag dilolo dipomeriggio disera
    domediodía du dupăamiaza dusoir dél délután ea eahketbeaivet eb ebongi ebusuku ebyámu efiafi eftermade
    eguerd eguerdiko eh eigulo em embrëmjes emesditës ep epasdites este etterm ew fi fọívnin gaueko gd gm gosoň
    gündüz günorta günortadansoň hawwaro hwaĩinĩ hádegi ichamthi illalla iltap iltapäivällä iluntz iluntzeko in
    intheafternoon intheevening ip iɓugajɔp ja jioni kechqurun keskip keskipäivällä keskpäeval kikiiɗe kingoto
    kisɛ́ndɛ koosk kooskoliny kugú kveld kyiukonyi laamiază lilli lk lumalwap makaaripi malam mchana mchochill
    md meiodia mezzogiorno midi migdia mittags mo mog mpókwa muu nabali nabalị nachm nachmittags nam napol
    napoludnie navečer ncwònzém nggabi nghapon ngo ngəgógəle nit nm nomëttes noon ntambama ntmeddit nyiaghuo odp
    odpoledne omaftenen omeftermiddagen opold opoldne ot pamunyi papussideinan pashamihe perpiet petang
    piecpušdīnē pipinisuno pm pn podne pol poledne pop popiet popietė popodne popol popoldan popoludní popołdnju
    popołedniu popołudniu poslijepodne posmidí ptg ptm pusd pusdienlaikā pärastlõunal påefterm påeftermiddagen
    påettermiddagen påkvelden påkvällen pēcp pēcpusd pēcpusdienā saasitazamchana sanje savonds seara shwane
    smiddags sn soir sore sorémalem srmlm síðdegis tadggwat tanghalingtapat tarda teipa tengahhari thapama tk tr
    trưa tushpayti tŋ tối uhrnommendaachs uk ulloqeqqatakingorna vakaras vakarā vespre več večer wb wengi
    wieczorem wpołudnie wótp wótpołdnja yamma yh ym yprynhawn yrhwyr zaarikayb zmw zveč zvečer õhtul ös öğle
    öğledensonra ĩyawĩoo ŋkambɔ́tnji ũg ǃuias ɔ̀sán ɛndámâ ɣetrɔ ʊshilèkʊsasʊ απόγ μεσημ μμ τοαπόγευμα
    τομεσημέρι апоўдні вечера вечерта вечора дня кечинде кешкі навечер напладне обедтэмейле орой пм подне полд
    полдень попл попладне поподне послијеподне пп следобед слоб тк түскі түстенкейінгі түштөнкийин түштөнкийинки
    увече чактүш эк үддунд үх ӕмбисбоныфӕстӕ өдөр երեկոյան կեսօր կեսօրին ցերեկը ցերեկվա אחרהצהריים בערב בצהריים
    נאָכמיטאָג ערב צהריים بظ بعدازظهر بعدالظهر تك دن دوپہر دوپہرمیں سہپہر شام شاممنجهند شاممیں شب ظهر ظهرًا عصر
    غو م مساء مساءً منجهندشام پیایم چك چۈشتىنكېيىن ܒܛ ߥ अपरान्ह अपराह्न दपेहरासंजा दपैहरबाद दुपार दोपहर पीएम
    बेलासे बेलुकी मध्यान्ह शाम शामजा संध्याकाळ सञ साँझ सांजे सांझ सांम দুপুর দুপুরবেলায় পিএম বিকাল সন্ধ্যা
    সন্ধ্যাবেলায় ਦੁਪਹਿਰੇ ਬਾਦੁ ਸ਼ਾਮੀਂ બપોરે સાંજે ପିଏମ அந்திமாலை நண்பகல் பிற்பகல் மதியம் மாலை పిఎమ్ మధ్యాహ్నం
    సాయంత్రం ಮಧ್ಯಾಹ್ನ ಸಂಜೆ ഉച്ച ഉച്ചതിരിഞ്ഞ് ഉച്ചയ്ക്ക് വൈകുന്നേരം സന്ധ്യ දවල් පව මධ්යාහ්නය රෑ හවස ค่ํา บ่าย
    หลังเที่ยง เที่ยง ในตอนบ่าย ในตอนเย็น ຕອນທ່ຽງ ຕອນບ່າຍ ຕອນແລງ ຫຼັງທ່ຽງ ཕྱིཆ ཕྱིདྲོ ညနေ နေ့လယ် မွန်းတည့်
    ნაშუადღ ნაშუადღევს საღ საღამოს შუადღ შუადღეს ሓቆስርምዕል ምሴት ቀትር ቃማ በምሽት ከሰዓት ድቀ ፋዱስደምቢ ᏒᎯᏱᎢ ᏒᎯᏱᎢᏗᏢ ᐲᒼ ថ្ងៃត្រង់
    នៅពេលយប់ នៅពេលរសៀល នៅពេលល្ងាច ᠦᠬᠣ ᱧᱤᱫᱟᱹ ḍeffiraza ọ̀sán ⵜⴰⴷⴳⴳⵡⴰⵜ 下午 下晝 中午 午後 夕方 夜晚 晚上 正午
    ꁯꋒ 오후 저녁 정오 𐐹𐑋 𐑐𐑥 𞤩𞤰
"""
_NIGHT = """
    danoite emini gece kechasi kunduzi naktī noaptea noću ponoći ponoči siang usiku vn vnoci wnocy yöllä éjjel
    öösel đêm βράδυ τοβράδυ наобяд ночи ноћу презнощта түнгі түничинде шөнө בלילה לילה رات راتمیں रात रात्र
    রাত্রি রাত্রিবেলায় ਰਾਤੀਂ રાત્રે இரவு రాత్రి ರಾತ್ರಿ രാത്രി กลางคืน ກາງຄືນ ຕອນກາງຄືນ ღამ ღამით 夜中
"""
NIGHT = -1
_HALVES = {
    word: first for first, known in ((NIGHT, _NIGHT), (12, _AFTER_NOON), (0, _BEFORE_NOON)) for word in known.split()
}
"""Words of CLDR for halves and parts of the day, in letters alone, with its first hour. At night 6 to 11 belong to the
evening."""


@attrs.frozen
class Stamp:
    """A date and a time, as numbers."""

    numbers: tuple[int, int, int]
    era: str
    time: tuple[int, int, int]
    style: str
    """How it is written: the same in a whole file."""

    def at(self, order: Order) -> dt.datetime | None:
        """The moment on the telephone's clock; None: there is no such day."""
        year, month, day = (self.numbers[place] for place in PLACES[order])
        try:
            if 1380 <= year < 1425:
                return dt.datetime.combine(_persian(year, month, day), dt.time(*self.time))
            return dt.datetime(_year(year, self.era), month, day, *self.time)  # noqa: DTZ001 - see its zone
        except ValueError:
            return None

    def may_be(self, order: Order) -> bool:
        """Whether anybody writes dates so in that order."""
        if any(each in self.style for each in "年년오"):
            return order == "ymd"
        return order != "mdy" or "." not in self.style.split("0")[1]  # between full stops the day stands first


def _year(year: int, era: str) -> int:
    """In the calendar of most: others count from 1911 (Taiwan), from the accession of an emperor, from Buddha. Raises
    ValueError."""
    if era:
        return year + {"r": 2018, "令": 2018, "h": 1988, "平": 1988, "民": 1911}[era[0]]
    if year < 100:
        year += 2000 if year < 50 else 2500
    elif year < 200:
        year += 1911
    if 2550 <= year < 2650:
        year -= 543
    if not 1970 <= year < 2100:
        raise ValueError("no year of a message")
    return year


def _persian(year: int, month: int, day: int) -> dt.date:
    """Raises ValueError."""
    if not (1 <= month <= 12 and 1 <= day <= (31 if month < 7 else 30)):
        raise ValueError("no such day")
    leap_years = sum(each % 33 in (1, 5, 9, 13, 17, 22, 26, 30) for each in range(1380, year))
    days = (year - 1380) * 365 + leap_years + (month - 1) * 30 + min(month - 1, 6) + day - 1
    return dt.date(2001, 3, 21) + dt.timedelta(days)


def split(line: str) -> Iterator[tuple[str, str]]:
    """What may be the stamp of a line, and what stands behind it; the likeliest first."""
    if (found := _BRACKET.match(line)) is not None:
        yield f"[{found['stamp']}", found["rest"]
        return
    head = line[:MOST_CHARS]
    if not any(map(str.isdecimal, head[:16])):
        return
    for separator in (_DASH, _COMMA):
        for found in separator.finditer(head):
            yield head[: found.start() if separator is _DASH else found.end()], line[found.end() :]


@lru_cache(maxsize=512)
def stamp(text: str) -> Stamp | None:
    """A date and a time; None: it is something else."""
    plain = (text if text.isascii() else "".join(map(_plain, normalize("NFKC", text)))).casefold().strip(" ,")
    date = _DATE.search(plain)
    if date is None:
        return None
    rest = f"{plain[: date.start()]}\0{plain[date.end() :]}"
    time = _TIME.search(rest)
    if time is None:
        return None
    hour, minute, second = int(time[1]), int(time[2]), int(time[3] or 0)
    before, behind = rest[: time.start()], rest[time.end() :]
    if any(map(str.isdecimal, before + behind)) or sum(map(str.isalpha, before + behind)) > MOST_LETTERS:
        return None
    before = before.partition("\0")[2] if "\0" in before else before  # of the day's name, if anything
    if (half := _half(behind, True)) is not None:
        hour, behind = _of_day(hour, half[0]), half[1]
    elif (half := _half(before, False)) is not None:
        hour, before = _of_day(hour, half[0]), half[1]
    if hour > 23 or minute > 59 or second > 59:
        return None
    numbers = int(date["a"]), int(date["b"]), int(date["c"])
    written = f"{date[0]}|{' '.join(before.split())}|{time[0]}|{' '.join(behind.split())}"
    return Stamp(numbers, date["era"] or "", (hour, minute, second), re.sub(r"\d+", "0", written))


def _plain(character: str) -> str:
    kind = category(character)
    return str(decimal(character)) if kind == "Nd" else "" if kind == "Cf" else " " if kind == "Zs" else character


_CONNECTIVES = frozenset(
    {"de", "du", "in", "an", "to", "ma", "at", "om", "um", "od", "do", "la", "le", "da", "en", "el"}
)
"""Short words that name a half of the day in one language, and in others stand before a time."""
_SEPARATORS = re.compile(r"[\s,،()\[\]\0日일]+")


def _half(words: str, is_behind: bool) -> tuple[int, str] | None:
    """Where words before or behind a time name a half of the day: its first hour, or ``NIGHT``, and the other words."""
    if not any(map(str.isalpha, words)):
        return None
    pieces = list(filter(None, _SEPARATORS.split(words)))
    for size in range(min(len(pieces), 4), 0, -1):
        for first in range(len(pieces) - size + 1):
            word = "".join(each for each in "".join(pieces[first : first + size]) if category(each)[0] in "LM")
            is_sure = is_behind or word not in _CONNECTIVES or "." in pieces[first]
            if word in _HALVES and is_sure:
                return _HALVES[word], " ".join([*pieces[:first], "A", *pieces[first + size :]])
    return None


def _of_day(hour: int, begin: int) -> int:
    if hour > 12:
        return hour
    hour %= 12
    return hour + begin if begin != NIGHT else hour if hour < 6 else hour + 12
