"""What WhatsApp itself writes into a chat, under the names of people or not, in many languages. Pure."""

import re
from unicodedata import normalize

from klaw.imports.whatsapp_time import MARKS

LEFT_OUT = re.compile(
    r"omit|omis|omes|omès|weggel|ausge(?:schl|lass)|отсутств|без медиа|пропущ|без фа|не добавлен|изостав"
    r"|izostav|izpu[sš]č"
    r"|vynech|pominię|utes?l|utelä|udelad|ikke inklud|sløyf|sisällyt|jätet|ei kuvaa|kihagy|elhagy|hiányz"
    r"|sikertelen|dahil edil"
    r"|atlanmış|disertakan|dimasuk|dikecual|disingkir|ocult|revelad|retiré|absent|manqu|esclus|inclus|mancan"
    r"|fehlen|λείφθ"
    r"|ληφθ|παράλειψ|εξαίρεσ|не додано|відсутн|ไม่มี|ถูกลบ|ละเว้น|bỏ|省略|略去|忽略|略過|含まれて|メディアなし|생략"
    r"|제외|छोड़|हटा"
    r"|वगळ|के बिना|અવગણ|પડત|શામેલ|સામેલ|છોડ|বাদ|נכלל|הושמט|הוסר|استبعاد|إدراج|حذف|مفقود|انداز|نکال|چھوڑ|ہٹا|விட|நீக்க"
    r"|విస్మరి|ಕೈಬಿಡ|ഒഴിവാക്ക|ਛੱਡ|ਛਡ|praleist|multivid|jäetud|buraxıl|çıxarıl|қосыл|tkazib yub|hequr|u hoq"
    r"|imerukwa|hazijaj"
    r"|weggelaat|kalakip|nalis|ar lár|slepp|utelatt",
    re.IGNORECASE,
)
"""Within angle brackets, or behind a mark: a picture, a recording, a document that the export does not have."""
EDITED = re.compile(
    r"edit|bearbeit|modifi|измен|редакт|редаг|змін|промен|өзгер|bewerk|edyt|düzen|נער|עודכ|تعديل|عدّ?ل|uprav|編集"
    r"|编辑|編輯|수정|편집"
    r"|redi[gj]|muok|szerk|módos|τροποπ|επεξεργ|sửa|แก้ไข|ured|uređ|izm[ij]|संपाद|एडिट|সম্পাদ|এডিট|ویرایش|ترمیم"
    r"|mainī|labot"
    r"|redag|muude|spremen|tahrir|redakt|ndrysh|hariri|sunting|திருத்த|సవరి|ತಿದ್ದ|തിരുത്ത|എഡിറ്റ|ਸੋਧ|ਐਡਿਟ|એડિટ"
    r"|સંપાદ|breyt|endre"
    r"|ändra",
    re.IGNORECASE,
)
"""Within angle brackets behind a text."""
ATTACHED = (
    "attached|прикрепл|вложение|файл|anhang|angehängt|adjunt|anex|pièce jointe|allegat|επισυνάφθηκε|додано|附件"
    "|đính kèm|eklendi"
    "|bifogat|príloha|příloha|załącz|atașa|bijgevoegd|vedlagt|vedhæftet|dilampir|terlampir|첨부|添付|csatolva"
    "|prilož|liite|پیوست"
    "|پیوستہ|แนบ|מצורף|المُ?رفق|संलग्न|अटैच|જોડાયેલ|priloga|pridėta|pievienots|lisatud|прикачен|приложен"
)
_FILE = re.compile(
    rf"\u200e<[^:<>\n]{{1,40}}:\s?(?P<a>[^<>\n]{{1,255}})>"
    rf"|<(?:{ATTACHED})[^:<>\n]{{0,20}}:\s?(?P<b>[^<>\n]{{1,255}})>"
    rf"|^[{MARKS}]*(?P<c>(?:IMG|VID|AUD|PTT|STK|DOC)-\d{{8}}-WA\d{{4,8}}\.\w{{2,5}}) \([^()\n]{{3,60}}\)"
    rf"|^\u200e(?P<d>\S[^\n]{{0,255}}?\.\w{{2,5}}) \([^()\n]{{3,60}}\)"
    rf"|^[{MARKS}]*(?P<e>\S[^\n]{{0,255}}?\.\w{{2,5}}) \((?:[^()\n]{{0,30}}(?:{ATTACHED}|attach|joint|ekli|附件"
    rf"|csatolva|biriktir"
    r"|ngjitur|pripojen|مرفق|سংযুক্ত|সংযুক্ত|aangeheg|əlavə|ചേർത്തു|ಸೇರಿಸ|ਅਟੈਚ|జోడించ|ambatanishwa|இணைக்க"
    r"|қосымша|privitku"
    r"|přilož)[^()\n]{0,30})\)",
    re.IGNORECASE | re.MULTILINE,
)
_DOCUMENT = re.compile(r"\u200e?(\S[^\n\u200e]{0,254}\.\w{2,5})(?: • \u200e[^\n\u200e]{1,40})? ?\u200e(?=\S)")
"""The name of a document, on an iPhone: then its pages, and whether it is there."""
_NOTE = re.compile(r"[ \n]?\u200e?<([^<>:\n]{3,80})>\s*\Z")
_PROGRAMS = re.compile(
    r"end-to-end encr|сквозн\w+ шифрован|Ende-zu-Ende-versch|cifrados de extremo a extremo|chiffrés de bout en bout"
    r"|crittografati end-to-end|criptografia de ponta a ponta|encriptadas ponto a ponto|наскрізн\w+ шифрув"
    r"|uçtan uca şifre"
    r"|w pełni zaszyfr|端到端加密|端對端加密|エンドツーエンド|종단간 암호|terenkripsi secara end|מוצפנות מקצה"
    r"|مشفرة تمام|رمزگذاری"
    r"|koncovým šifr"
    r"|end-to-end versl|end-to-end-krypt|ende-til-ende-krypt|komplett krypt|végpontok közötti|criptate integral"
    r"|mã hóa đầu cuối"
    r"|एंड-टू-एंड|एन्ड-टू-एन्ड|এন্ড-টু-এন্ড|κρυπτογραφούνται πλήρως|salataan täysin|potpunom enkripc"
    r"|hujung ke hujung|เข้ารหัสจากต้นทาง",
    re.IGNORECASE,
)
_MESSAGES = re.compile(
    r"\W*(?:messages|сообщения|nachrichten|los mensajes|les messages|i messaggi|as (?:suas )?mensagens|повідомлення"
    r"|mesajlar|wiadomości|消息|訊息|メッセージ|메시지|pesan|ה?הודעות|الرسائل|پیام|zprávy|správy|berichten|beskeder|meldinger|meddelanden"
    r"|az üzenetek|mesajele|tin nhắn|मैसेज|मेसेज|মেসেজ|τα μηνύματα|viestit|poruke|mesej|ข้อความ)",
    re.IGNORECASE,
)
"""So begins what WhatsApp says of encryption."""
_COLON = re.compile(
    r"disappearing message|security code|исчезающ|код безопасности|selbstlöschend|Sicherheits(?:nummer|code)"
    r"|mensajes temporales"
    r"|código de segur|messages éphémères|code de sécurité|messaggi effimeri|codice di sicurezza"
    r"|mensagens temporárias|zelfverwijder"
    r"|beveiligingscode|зникаюч|код безпеки|znikając|kod zabezp|kaybolan mesaj|süreli mesaj|güvenlik kod|mizící"
    r"|bezpečnostní kód"
    r"|(?:changed|updated) (?:this group|the group|the subject|their)"
    r"|ответил\(а\) на|изменил\w*(?:\(а\))? (?:тему|назван|описан|настройк)",
    re.IGNORECASE,
)
_YOU = frozenset(
    ["you", "you're", "вы", "du", "sie", "vous", "tú", "usted", "você", "tu", "hai", "ви", "siz", "u", "jij"]
)
_QUOTES = (("“", "”"), ("„", "“”"), ("«", "»"), ("「", "」"), ("『", "』"), ("‘", "’"))
MOST_WORDS = 8
"""Of a name."""
MOST_PLACEHOLDER, MOST_GONE = 60, 120
"""Characters."""
_SIGNS = re.compile(r"[<(\u200e]")
"""Without one of them it is a text alone."""

_GONE = """
    this message was deleted | you deleted this message | message deleted | הודעה זו נמחקה | ההודעה הזו נמחקה |
    מחקת הודעה זו | מחקת את ההודעה הזו | данное сообщение удалено | это сообщение удалено | сообщение удалено |
    вы удалили данное сообщение | вы удалили это сообщение | ce message a été supprimé |
    vous avez supprimé ce message | questo messaggio è stato eliminato | hai eliminato questo messaggio |
    esta mensagem foi apagada | essa mensagem foi apagada | esta mensagem foi eliminada | mensagem apagada |
    você apagou esta mensagem | você apagou essa mensagem | apagou esta mensagem | eliminou esta mensagem |
    se eliminó este mensaje | este mensaje fue eliminado | eliminaste este mensaje | αυτό το μήνυμα διαγράφηκε |
    διαγράψατε αυτό το μήνυμα | διαγράψατε το μήνυμα | це повідомлення було видалено | це повідомлення видалено |
    ви видалили це повідомлення | diese nachricht wurde gelöscht | du hast diese nachricht gelöscht |
    تم حذف هذه الرسالة | لقد حذفت هذه الرسالة | أنت حذفت هذه الرسالة | এই মেসেজটি বাদ দেওয়া হয়েছে |
    এই বার্তাটি মুছে ফেলা হয়েছে | আপনি এই মেসেজটি বাদ দিয়েছেন | 此訊息已刪除 | 這則訊息已刪除 | 您已刪除此訊息 |
    此消息已删除 | 这条消息已被删除 |
    您已删除这条消息 | 你删除了这条消息 | tin nhắn này đã bị xóa | tin nhắn này đã bị xoá | bạn đã xóa tin nhắn này |
    bạn đã xoá tin nhắn này | یہ میسج حذف کر دیا گیا ہے | یہ پیغام حذف کیا گیا | bu mesaj silindi |
    bu mesajı sildiniz | ข้อความนี้ถูกลบแล้ว | ข้อความนี้ได้ถูกลบ | คุณลบข้อความนี้ | คุณได้ลบข้อความนี้ |
    det här meddelandet raderades | detta meddelande raderades | du raderade det här meddelandet |
    du raderade detta meddelande | táto správa bola odstránená | túto správu ste odstránili |
    ta wiadomość została usunięta | usunięto tę wiadomość | usunąłeś(-ęłaś) tę wiadomość |
    acest mesaj a fost șters | ați șters acest mesaj | dit bericht is verwijderd | u hebt dit bericht verwijderd |
    je hebt dit bericht verwijderd | denne meldingen ble slettet | du slettet denne meldingen |
    mesej ini telah dipadam | anda telah memadamkan mesej ini | हा मेसेज हटवण्यात आला | तुम्ही हा मेसेज हटवला |
    이 메시지는 삭제되었습니다 | 삭제된 메시지입니다 | 삭제한 메시지입니다 | 이 메시지를 삭제했습니다 |
    このメッセージは削除されました | このメッセージを削除しました |
    ez az üzenet törlésre került | törölted ezt az üzenetet | pesan ini dihapus | pesan ini telah dihapus |
    anda menghapus pesan ini | anda telah menghapus pesan ini | ova je poruka izbrisana | ova poruka je izbrisana |
    izbrisali ste ovu poruku | यह मैसेज डिलीट कर दिया गया है | यह संदेश मिटाया गया | आपने यह मैसेज डिलीट किया |
    આ મેસેજ ડિલીટ કરાયો | તમે આ મેસેજ ડિલીટ કર્યો | tämä viesti poistettiin | poistit tämän viestin |
    این پیام حذف شده است | این پیام حذف شد | شما این پیام را حذف کردید | denne besked er blevet slettet |
    denne besked blev slettet | du slettede denne besked | du har slettet denne besked | tato zpráva byla smazána |
    tato zpráva byla odstraněna | tuto zprávu jste smazal/a | tuto zprávu jste odstranil/a |
    aquest missatge s'ha suprimit | has suprimit aquest missatge | šī ziņa tika izdzēsta | jūs izdzēsāt šo ziņu |
    бұл хат жойылды | ushbu xabar o'chirildi | to sporočilo je bilo izbrisano | to sporočilo ste izbrisali |
    ujumbe huu ulifutwa | ši žinutė buvo ištrinta | jūs ištrynėte šią žinutę | see sõnum on kustutatud |
    kustutasid selle sõnumi | съобщението беше изтрито | това съобщение беше изтрито | изтрихте това съобщение |
    hierdie boodskap was uitgevee | bu ismarıc silindi | ഈ സന്ദേശം ഇല്ലാതാക്കിയതാണ് | оваа порака беше избришана |
    ова порука је обрисана | இத்தகவல் திரும்பப்பெறப்பட்டது | இந்த செய்தி நீக்கப்பட்டது | ఈ సందేశం తొలగించబడింది |
    ಈ ಸಂದೇಶವು ಅಳಿಸಲ್ಪಟ್ಟಿದೆ | ਇਸ ਸੁਨੇਹੇ ਨੂੰ ਹਟਾਇਆ ਗਿਆ | missed voice call | missed video call |
    missed group voice call | missed group video call | שיחה קולית שלא נענתה | שיחת וידאו שלא נענתה |
    пропущенный аудиозвонок | пропущенный видеозвонок | appel vocal manqué | appel vidéo manqué |
    chiamata vocale persa | videochiamata persa | chamada de voz perdida | chamada de vídeo perdida |
    videochamada perdida | llamada perdida | llamada de voz perdida | videollamada perdida | αναπάντητη κλήση |
    αναπάντητη φωνητική κλήση | αναπάντητη βιντεοκλήση | пропущений аудіодзвінок | пропущений відеодзвінок |
    verpasster sprachanruf | verpasster videoanruf | مكالمة صوتية فائتة | مكالمة فيديو فائتة | 未接語音通話 |
    未接語音來電 |
    未接视频通话 | 未接视频来电 | 未接语音通话 | 未接语音来电 | 未接視像通話 | 未接視訊通話 | cuộc gọi nhỡ |
    cuộc gọi video nhỡ |
    cevapsız sesli arama | cevapsız görüntülü arama | สายที่ไม่ได้รับ | วิดีโอคอลที่ไม่ได้รับ | missat röstsamtal |
    missat videosamtal | zmeškaný hovor | zmeškaný hlasový hovor | zmeškaný videohovor | nieodebrane połączenie |
    nieodebrane połączenie głosowe | nieodebrane połączenie wideo | apel vocal ratat | apel vocal nepreluat |
    apel video ratat | apel video nepreluat | gemist spraakgesprek | gemiste spraakoproep | gemist videogesprek |
    gemiste video-oproep | tapt taleanrop | tapt videoanrop | panggilan suara terlepas | panggilan video terlepas |
    मिस्ड वॉइस कॉल | मिस्ड व्हॉइस कॉल | मिस्ड वीडियो कॉल | 부재중 전화 | 부재중 음성통화 | 부재중 영상통화 |
    不在着信 |
    音声通話不在着信 |
    ビデオ通話不在着信 | nem fogadott hanghívás | nem fogadott videohívás | panggilan suara tak terjawab |
    panggilan video tak terjawab | propušteni glasovni poziv | propušteni videopoziv | vastaamaton äänipuhelu |
    vastaamaton videopuhelu | تماس صوتی پاسخ داده نشده | تماس تصویری پاسخ داده نشده | ubesvaret taleopkald |
    ubesvaret videoopkald | trucada de veu perduda | trucada de vídeo perduda | videotrucada perduda |
    пропуснато гласово обаждане | пропуснато видео обаждане | пропуштен гласовни позив | live location shared |
    геоданные отправлены | posizione attuale condivisa | localisation en direct partagée |
    ubicación en tiempo real compartida | localização atual compartilhada | live-standort wird geteilt |
    live locatie gedeeld | mevcut konum paylaşıldı | udostępniona transmisja położenia | геодані надіслано |
    lokasi terkini dibagikan | 공유한 실시간 위치 | ライブロケーション共有 | 共享实时位置 | 實時位置已分享 |
    image omitted | video omitted | audio omitted | gif omitted | sticker omitted | document omitted |
    contact card omitted |
    bild weggelassen | video weggelassen | audio weggelassen | gif weggelassen | sticker weggelassen |
    dokument weggelassen |
    kontaktkarte ausgelassen | изображение отсутствует | видео отсутствует | аудио отсутствует |
    аудиофайл отсутствует |
    gif отсутствует | документ отсутствует | стикер не добавлен | карточка контакта отсутствует | imagen omitida |
    video omitido | audio omitido | gif omitido | sticker omitido | documento omitido | tarjeta de contacto omitida |
    image absente | vidéo absente | audio omis | gif retiré | sticker omis | document manquant |
    fiche contact manquante |
    immagine omessa | video omesso | audio omesso | gif esclusa | sticker non incluso | documento omesso |
    scheda contatto omessa | imagem ocultada | vídeo omitido | áudio ocultado | figurinha omitida |
    imagem não revelada |
    vídeo não revelado | documento não revelado | afbeelding weggelaten | video weggelaten | audio weggelaten |
    document weggelaten | visitekaartje weggelaten | зображення відсутнє | відео відсутнє | аудіо відсутнє |
    görüntü dahil edilmedi | video dahil edilmedi | ses dahil edilmedi | belge dahil edilmedi | obraz pominięty |
    wideo pominięte | audio pominięte | dokument pominięty |
"""
_BEGINS = """
    waiting for this message | ожидание данного сообщения | ожидание этого сообщения | warten auf diese nachricht |
    auf diese nachricht wird gewartet | esperando este mensaje | esperando el mensaje | en attente de ce message |
    en attente du message | in attesa del messaggio | in attesa di questo messaggio | aguardando mensagem |
    aguardando esta mensagem | a aguardar esta mensagem | wachten op dit bericht | wachten op bericht |
    очікування цього повідомлення | oczekiwanie na wiadomość | oczekiwanie na tę wiadomość | bu mesaj bekleniyor |
    mesaj bekleniyor | čekání na tuto zprávu | menunggu pesan ini | väntar på detta meddelande |
    väntar på meddelande | venter på denne meldingen | venter på denne besked | odotetaan tätä viestiä |
    várakozás az üzenetre | בהמתנה להודעה זו | في انتظار هذه الرسالة | このメッセージを待っています |
    このメッセージを待機中 |
    이 메시지를 기다리는 중 | 正在等待此消息 | 正在等待此訊息 | this message was deleted by admin |
    это сообщение удалено админом |
    diese nachricht wurde von admin | this message can't be displayed |
"""


def _normal(text: str) -> str:
    plain = re.sub(f"[{MARKS}]", "", normalize("NFKC", text)).casefold().replace("’", "'").replace("‘", "'")
    return " ".join(plain.split()).rstrip(".。।۔ ")


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(_normal, text.split("|"))))


GONE = _listed(_GONE)
"""Whole texts: of what was deleted, of missed calls, of what was not exported where no mark is left to tell it."""
_WAITING = tuple(_listed(_BEGINS))


def _is_gone(text: str) -> bool:
    if len(text) > MOST_GONE:
        return False
    plain = _normal(text)
    return text.strip() == "null" or plain in GONE or plain.startswith(_WAITING)


def _is_programs(text: str) -> bool:
    return _is_gone(text) or bool(_MESSAGES.match(text) and _PROGRAMS.search(text[:100]))


def is_of_person(text: str, is_marked: bool) -> bool:
    """Whether somebody sent what is told under a name, if only what was deleted or not exported; see ``said``."""
    first = text.partition("\n")[0][:100]
    is_placeholder = len(first) < MOST_PLACEHOLDER and ("<" in first or (is_marked and "\u200e" in first))
    return bool(
        not text.strip() or _is_gone(text) or (is_placeholder and LEFT_OUT.search(first)) or said(text, is_marked)[0]
    )


def is_sender(name: str, known: dict[str, int]) -> bool:
    """Whether what stands before a colon is a name, and not the beginning of a notice.

    Args:
        name: it.
        known: how often each stands before one in the chat.
    """
    if any(name.rfind(opening) > max(map(name.rfind, closing)) for opening, closing in _QUOTES) or name.count('"') % 2:
        return False
    words, count = name.split(), known.get(name, 0)
    if _COLON.search(name) is not None or (len(words) > MOST_WORDS and count < 2):
        return False
    for size in range(1, len(words) - 1):
        other = " ".join(words[:size])
        if sum(each[0].isupper() for each in words[size:]) * 2 >= len(words) - size:
            continue  # so go names on, and no sentences
        is_known = known.get(other.removesuffix("'s").removesuffix("’s"), 0) > count and len(words) - size > 2
        if is_known or other.casefold() in _YOU:
            return False
    return True


def said(text: str, is_marked: bool) -> tuple[str, list[str]]:
    """What a person said, files in brackets, and the names of these files. Empty: it was the program.

    Args:
        text: what stands under the person's name.
        is_marked: it is of an iPhone, which puts U+200E before what the program writes.
    """
    if not _SIGNS.search(text):
        return "" if _is_programs(text) else re.sub(f"[{MARKS}]", "", text).strip(), []
    files: list[str] = []

    def file(found: re.Match[str]) -> str:
        files.append(next(filter(None, found.groups())).strip())
        return f"[file: {files[-1]}]"

    if is_marked and (document := _DOCUMENT.match(text)) is not None:
        behind = text[document.end() - 1 :]
        there, _, more = behind.partition("\n")
        text = behind if there.startswith("\u200e<") else f"[file: {document[1]}]\n{more}".rstrip()
    text = _FILE.sub(file, text)
    if (note := _NOTE.search(text)) is not None and (EDITED.search(note[1]) or (is_marked and "\u200e" in note[0])):
        text = text[: note.start()]
    first, _, more = text.partition("\n")
    bare = re.fullmatch(rf"[{MARKS}]*<\s?([^<>\n]{{2,80}})>\s*", first)
    is_programs = is_marked and first.startswith("\u200e") and not first.rstrip().endswith((":", "："))
    if (bare and LEFT_OUT.search(bare[1])) or (is_programs and "://" not in first):
        text = more
    elif is_marked and "\u200e" in first:
        before, _, behind = first.rpartition("\u200e")
        if len(behind) < MOST_PLACEHOLDER and LEFT_OUT.search(behind):
            text = "\n".join(filter(None, (before.rstrip(), more)))
    if _is_programs(text):
        text = ""
    return re.sub(f"[{MARKS}]", "", text).strip(), files
