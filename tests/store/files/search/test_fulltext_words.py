"""What full text finds, in every script: words as people ask for them, against the real index."""

from collections.abc import Iterator

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.memory.recall.query import content_words, search_words
from klaw.store import migrations
from klaw.store.engine import tables
from klaw.store.engine.connect import prepare_writer
from klaw.store.engine.tokenizer import INDEXED_CHARACTERS, is_lone, pairs, segments, stem, words
from klaw.store.kinds import messages
from klaw.store.search import fulltext
from tests.support.stores import new

BEGINNING, END = "⟦", "⟧"


@pytest.fixture(scope="module")
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    prepare_writer(connection)
    migrations.migrate(connection)
    yield connection
    connection.close()


def found(connection: apsw.Connection, said: list[str], asked: list[str]) -> list[str]:
    """Say something in a new chat and ask for words: the messages found, the best first."""
    with connection:
        chat = f"c{connection.total_changes()}"
        said_messages = [messages.insert(connection, new(text, chat=chat)) for text in said]
    key = messages.session(connection, said_messages[0].chat).key
    hits = fulltext.scores(connection, asked, messages.chat_word(key), (0, 1 << 60), 100).best(10)
    return [message.content for message in messages.by_rowids(connection, [hit.rowid for hit in hits])]


ASKED_AND_SAID = {
    "chinese": ("我妹妹对什么过敏？", "我妹妹不能吃花生，她过敏。", "明天我们去北京看朋友。"),
    "chinese, other words around it": ("你记得北京烤鸭吗？", "昨天的北京烤鸭真好吃", "上海的天气很热"),
    "chinese, one character": ("猫在哪里？", "我家里有一只黑猫", "我家里有一只黑狗"),
    "chinese, one character in the middle": ("猫？", "那只猫叫小白", "那只狗叫小黑"),
    "chinese beside latin": ("iPhone手机多少钱", "新手机花了五千块", "新房子花了很多时间"),
    "japanese": ("猫の名前は何ですか？", "うちの猫は、名前がミケです。", "明日は会議が二つあります。"),
    "japanese, hiragana for katakana": ("りんごはどこ？", "リンゴを三つ買いました", "バナナを三つ買いました"),
    "japanese, half width": ("ｶﾞｿﾘﾝはどこ", "ガソリンを入れてきた", "電車に乗ってきた"),
    "japanese, voicing mark apart": ("か\u3099っこう", "がっこうへいく", "かいしゃへいく"),
    "thai": ("แมวของฉันชื่ออะไร", "แมวตัวนี้ชื่อมะลิ", "วันนี้ฝนตกหนัก"),
    "thai inside": ("รหัสประตูคืออะไร", "ฉันจะจดไว้ว่ารหัสประตูคือ4815", "วันนี้อากาศร้อน"),
    "lao": ("ລະຫັດປະຕູ", "ຈົ່ງຈື່ລະຫັດປະຕູໃໝ່", "ມື້ນີ້ຝົນຕົກ"),
    "khmer": ("លេខកូដទ្វារ", "សូមចងចាំលេខកូដទ្វារថ្មី", "ថ្ងៃនេះភ្លៀង"),
    "myanmar": ("တံခါးကုဒ်", "အသစ်ဖြစ်တဲ့တံခါးကုဒ်ကိုမှတ်ထားပါ", "ဒီနေ့မိုးရွာတယ်"),
    "korean, other particles": ("고양이는 어디 있어요?", "어제 고양이가 집에 왔다", "어제 강아지도 밥을 먹었다"),
    "korean, inside a compound": ("비밀번호가 뭐예요?", "와이파이비밀번호: 4815", "오늘은 비가 온다"),
    "russian": ("Где живёт моя сестра?", "Сестру я видел в Казани, живет она там", "Сегодня дождь"),
    "russian, stress and soft hyphen": ("замо\u0301к", "За\u00adмок закрыт", "Дверь открыта"),
    "russian, й typed apart": ("чаи\u0306", "Зелёный чай", "Чёрный кофе"),
    "english": ("Which allergies has Anna?", "Anna has an allergy to peanuts", "The train is late"),
    "mixed": ("пароль от wifi 东京", "the wifi in 东京 has the password 4815", "сегодня хорошая погода"),
    "full width": ("ＮＡＳＡ", "a book about NASA", "a book about the sea"),
}


@pytest.mark.parametrize(("asked", "wanted", "other"), ASKED_AND_SAID.values(), ids=ASKED_AND_SAID)
def test_a_question_finds_what_was_said(connection: apsw.Connection, asked: str, wanted: str, other: str) -> None:
    assert found(connection, [other, wanted, other], content_words(asked, 64))[:1] == [wanted]


@pytest.mark.parametrize(
    ("asked", "wanted"), [("🎂", "Party 🎂🎉!"), ("👍🏽", "👍"), ("❤", "ок ❤️"), ("🇩🇪", "из 🇩🇪 с 🇫🇷")]
)
def test_an_emoji_finds_itself(connection: apsw.Connection, asked: str, wanted: str) -> None:
    assert found(connection, ["no party", wanted, "🙈"], list(search_words(asked))) == [wanted]


def test_what_a_person_searches_for_may_be_small_talk(connection: apsw.Connection) -> None:
    hits = found(connection, ["thanks", "спасибо", "谢谢你"], list(search_words("谢谢 thanks")))
    assert sorted(hits) == ["thanks", "谢谢你"]


def highlighted(connection: apsw.Connection, text: str, asked: list[str]) -> str:
    with connection:
        message = messages.insert(connection, new(text, chat="highlights"))
    key = messages.session(connection, message.chat).key
    sql = "SELECT highlight(messages_fts, 0, ?, ?) FROM messages_fts WHERE messages_fts MATCH ? AND rowid = ?"
    return str(
        connection.execute(sql, (BEGINNING, END, fulltext.match_in(asked, messages.chat_word(key)), message.rowid)).get
    )


@pytest.mark.parametrize(
    ("text", "asked", "marked"),
    [
        ("昨天的北京烤鸭，真好", "北京烤鸭", "昨天的⟦北京烤鸭⟧，真好"),
        ("👍 Я — ёж, 日本語 и чай", "чай ёж", "👍 Я — ⟦ёж⟧, 日本語 и ⟦чай⟧"),
        ("那只黑猫", "猫", "那只黑⟦猫⟧"),
        ("🎂🎉 ok", "🎉", "🎂⟦🎉⟧ ok"),
        ("ดื่มน้ำเย็น", "น้ำ", "ดื่ม⟦น้ำเ⟧ย็น"),
        ("ｶﾞｿﾘﾝ代", "ガソリン", "⟦ｶﾞｿﾘﾝ⟧代"),
    ],
)
def test_offsets_are_those_of_the_text(connection: apsw.Connection, text: str, asked: str, marked: str) -> None:
    """A pair is marked as a whole: of a single character the pair that begins with it."""
    assert highlighted(connection, text, list(search_words(asked))) == marked


@pytest.mark.parametrize(
    "text",
    [
        "谢谢", "好的，谢谢！", "OK，没问题", "嗯嗯", "你好", "什么？",
        "はい", "ありがとうございます！", "わかりました。", "お願いします", "了解", "これは何ですか",
        "สวัสดีครับ", "ขอบคุณมากค่ะ", "ຂອບໃຈ", "អរគុណ", "မင်္ဂလာပါ",
        "네, 감사합니다", "안녕하세요", "ㅋㅋㅋ", "👍👍 ok", "🎂", "❤️", "™",
    ],
)  # fmt: skip
def test_small_talk_without_spaces_has_no_content(text: str) -> None:
    assert content_words(text, 10) == []


def test_runs_are_cut_at_function_words() -> None:
    assert content_words("我的猫叫什么名字？", 10) == ["猫叫", "名字"]
    assert content_words("私の猫の名前は何ですか", 10) == ["猫", "名前"]
    assert content_words("แมวของฉันชื่ออะไร", 10) == ["แม", "มว", "ชื่อ"]
    assert content_words("우리 회의는 언제입니까", 10) == ["회의"]


def test_short_i_is_a_letter() -> None:
    assert stem("йод") == stem("и\u0306од") != stem("иод")
    assert stem("ёлка") == stem("елка")


def test_pairs_keep_marks_with_their_character() -> None:
    assert pairs("น้ำดี") == ["น้ำดี"]
    assert pairs("が\u3099") == ["が\u3099"]
    assert pairs("猫") == ["猫"]
    assert is_lone("น้ำ")
    assert not is_lone("น้ำดี")
    assert not is_lone("a")
    assert not is_lone("")


SCRIPTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        st.sampled_from("猫の名前ガｶﾞ々ー น้ำชื่อ ກຳ ក្រុម မြန်မာ 한국어 ёй и\u0306 a1 👍🏽🇩🇪\u200d\ufe0f'\"*^-():"),
    ),
    max_size=60,
)


@given(SCRIPTS)
def test_index_query_and_gate_agree(text: str) -> None:
    """Whatever a query asks for that stands in a text is found by full text, and counted by the gate."""
    connection = _memory()
    connection.execute("DELETE FROM plain")
    connection.execute("INSERT INTO plain (rowid, content) VALUES (1, ?)", (text,))
    forms = {stem(word) for word in words(text)}
    for word in [*search_words(text), *content_words(text, 64)]:
        assert stem(word) in forms
        match = f"{{content}}: {fulltext.phrase(word)}"
        assert connection.execute("SELECT count(*) FROM plain WHERE plain MATCH ?", (match,)).get == 1, word


_memories: list[apsw.Connection] = []


def _memory() -> apsw.Connection:
    if not _memories:
        connection = apsw.Connection(":memory:")
        prepare_writer(connection)
        connection.execute("CREATE VIRTUAL TABLE plain USING fts5 (content, tokenize = 'klaw')")
        _memories.append(connection)
    return _memories[0]


@given(SCRIPTS)
def test_segments_are_parts_of_the_text_in_order(text: str) -> None:
    place = 0
    for segment, _ in segments(text):
        place = text.index(segment, place) + len(segment)


def test_a_word_counts_as_rare_or_not_by_its_own_chat(connection: apsw.Connection) -> None:
    """«Анна» is in every message of this chat and nowhere else: here it says nothing."""
    with connection:
        for number in range(30):
            messages.insert(connection, new(f"совсем другое {number}", chat="elsewhere"))
    best = found(connection, ["Анна спит", "Анна и Анна и Анна", "Анна купила лодку", "Анна ест"], ["Анна", "лодка"])
    assert best[0] == "Анна купила лодку"
    assert len(best) == 4


def test_words_that_there_is_no_time_for_are_left_out(connection: apsw.Connection) -> None:
    with connection:
        message = messages.insert(connection, new("один два три", chat="slow"))
    key = messages.session(connection, message.chat).key
    looked = iter([False, True])
    hits = fulltext.scores(connection, ["один", "два"], messages.chat_word(key), (0, 1 << 60), 1, lambda: next(looked))
    assert not hits.complete
    assert len(hits.best(10)) == 1


def test_of_a_very_long_text_the_beginning_is_found_and_it_can_be_removed(connection: apsw.Connection) -> None:
    """26.A2: the words of a message of 1 MB kept the writer, and with it all users, for up to a second."""
    long = "giraffe " + "a-" * INDEXED_CHARACTERS + " zebra"
    assert found(connection, [long], ["giraffe"]) == [long]
    assert found(connection, [long], ["zebra"]) == []
    whole = "INSERT INTO messages_fts (messages_fts, rank) VALUES ('integrity-check', 1)"
    connection.execute(whole)
    (rowid,) = connection.execute("SELECT rowid FROM messages WHERE content = ?", (long,)).fetchone()
    tables.unindex_row(connection, "messages", rowid)
    connection.execute("DELETE FROM messages WHERE rowid = ?", (rowid,))
    connection.execute(whole)
