"""Texts that do not say in which charset they are. Pure."""

import pytest

from klaw.domain.charset import guess
from klaw.domain.text import decode, find_charset

RUSSIAN = "Ключ лежит под горшком у двери. Позвони, когда приедешь домой."
TEXTS = [
    (RUSSIAN, "cp1251 koi8-r cp866 iso8859-5 mac-cyrillic utf-16-le utf-16-be utf-16 utf-8-sig"),
    ("Имя;Город\nАнна;Тверь\n", "cp1251 koi8-r cp866 iso8859-5 mac-cyrillic"),
    ("Договор № 5 — «Ромашка»", "cp1251"),
    ("СЧЁТ ЗА МАРТ", "koi8-r cp1251 cp866"),
    ("Ключ лежить під горщиком біля дверей. Зателефонуй, коли приїдеш.", "cp1251 koi8-u iso8859-5 cp1125"),
    ("Здраво, живим у Београду, ђак, њива", "cp1251"),
    ("Беларусь: ўсё добра, дзякуй", "cp1251"),
    ("Příliš žluťoučký kůň úpěl ďábelské ódy.", "cp1250 iso8859-2"),
    ("Miasto;Państwo\nŁódź;Polska\nZażółć gęślą jaźń", "cp1250 iso8859-2"),
    ("Árvíztűrő tükörfúrógép. A bérleti díj hétszáz euró.", "cp1250 iso8859-2"),
    ("Το ενοίκιο είναι εφτακόσια ευρώ. Η προθεσμία είναι έξι εβδομάδες.", "cp1253 iso8859-7"),
    ("המפתח נמצא מתחת לעציץ ליד הדלת. תתקשר כשתגיע הביתה.", "cp1255 iso8859-8"),
    ("الإيجار سبعمائة يورو. مدة الإشعار ستة أسابيع.", "cp1256 iso8859-6"),
    ("şehir;ülke\nİzmir;Türkiye\nŞişli;ağ\n", "cp1254 iso8859-9"),
    ("Der Schlüssel liegt unter dem Blumentopf. Die Miete beträgt 700 € für März.", "cp1252 iso8859-15"),
    ("La clé est sous le pot de fleurs à côté de la porte. Le loyer a été payé.", "cp1252 iso8859-1"),
    ("España: mañana, ¿qué? ¡Sí!", "cp1252"),
    ("Raktas yra po vazonu prie durų. Nuoma yra septyni šimtai eurų, žiūrėk čia.", "cp1257 iso8859-13"),
    ("กุญแจอยู่ใต้กระถางต้นไม้ข้างประตู ค่าเช่าเจ็ดร้อยยูโร", "cp874 tis-620"),
    ("租金是每月七百欧元。通知期为六周。", "gbk gb18030"),
    ("城市,國家\n里加,拉脫維亞\n", "big5"),
    ("家賃は月七百ユーロです。鍵は植木鉢の下にあります。", "shift_jis euc_jp iso2022_jp"),
    ("都市,国\nリガ,ラトビア\nオスロ,ノルウェー\n", "shift_jis euc_jp"),
    ("월세는 칠백 유로입니다. 해지 통지 기간은 육 주입니다.", "euc_kr cp949 iso2022_kr"),
]


@pytest.mark.parametrize(("text", "codec"), [(text, codec) for text, codecs in TEXTS for codec in codecs.split()])
def test_charset_is_told_by_its_letters(text: str, codec: str) -> None:
    data = text.encode(codec)
    assert (decode(data, declares=False), find_charset(data, declares=False)[1]) == (text, True)
    assert decode(data * 50, declares=False)[: len(text)] == text


@pytest.mark.parametrize("data", [bytes(range(128, 256)), "Ключ".encode("cp1251"), b"7 \xe9\xe8"])
def test_charset_that_cannot_be_told_is_not_sure(data: bytes) -> None:
    assert not guess(data)[1]


@pytest.mark.parametrize(
    ("codec", "label"),
    [
        ("utf-8", "windows-1251"),
        ("cp1251", "utf-8"),
        ("cp1251", "iso-8859-1"),
        ("koi8-r", "gb2312"),
        ("cp1251", "cp1251"),
    ],
)
def test_declared_charset_counts_only_if_it_makes_sense(codec: str, label: str) -> None:
    page = f"<meta charset={label}><p>{RUSSIAN}".encode(codec)
    assert RUSSIAN in decode(page)
    assert RUSSIAN in decode(page, label)
