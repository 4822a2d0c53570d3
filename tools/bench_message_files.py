"""Whether a model is given what stands in files that were dropped into a chat, and how soon.

    python tools/bench_message_files.py DATA [--models DIR] [--json]

``DATA`` has ``kb/documents``, ``kb-finance/documents`` and ``recall``. Ten files (PDF, scan, DOCX, XLSX, PPTX, EPUB,
CSV, ODT, EML, HTML; English and Russian, most of them long) are dropped into one chat of a real server with the real
embedding model, and twenty questions are asked: a question counts when the request to the model holds the answer.
Before that a PDF of 304 pages is uploaded and asked about at once, beside somebody who stores a fact every 200 ms.
Printed are the seconds from the beginning of the upload to the request, and the median and p99 of storing a fact,
without and with it. The scan needs tesseract with Russian.
"""

import argparse
import csv
import io
import json
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.test_http import http
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home

SOLO = """
If I want to use the detector in the paper `SOLO: Segmenting Objects by Locations`, what is the implemented class name
in `mmdet.models.dense_heads`?
""".strip()
QUESTIONS = {
    "mmdetection.pdf": [("Which paper uses the Fast NMS processing?", "YOLACT"), (SOLO, "DecoupledSOLOHead")],
    "скан.pdf": [
        ("Какой номер у договора поставки?", "4417"),
        ("До какого числа действует договор поставки?", "30 ноября"),
    ],
    "отчёт.docx": [
        ("Кто отвечает за склад в Твери?", "Мелентьева"),
        ("Сколько паллет помещается на складе в Твери?", "1850"),
    ],
    "budget.xlsx": [
        ("How much was spent on the greenhouse roof?", "7310"),
        ("Which supplier delivered the irrigation pump?", "Hydrolund"),
    ],
    "доклад.pptx": [("Какая скорость у нового поезда?", "360"), ("Когда начнутся испытания нового поезда?", "сентябр")],
    "novel.epub": [
        ("What is the name of the lighthouse keeper's dog?", "Brannock"),
        ("What did the keeper hide under the stairs?", "barometer"),
    ],
    "счётчики.csv": [
        ("Какие показания были у счётчика в подвале?", "90417"),
        ("Кто снимал показания счётчика на чердаке?", "Уварова"),
    ],
    "рецепты.odt": [
        ("Сколько граммов ржаной муки нужно для закваски?", "135"),
        ("При какой температуре печь бородинский хлеб?", "215"),
    ],
    "hotel.eml": [
        ("What is the confirmation code of the hotel booking?", "QX7-2291"),
        ("When does the hotel's kitchen close?", "21:40"),
    ],
    "музей.html": [("Сколько стоит билет в музей для студентов?", "280"), ("По каким дням музей закрыт?", "вторник")],
}


def paragraphs(data: Path) -> tuple[list[str], list[str]]:
    """Texts to hide an answer in, in Russian and English."""
    said = json.loads((data / "recall/xquad-ru-dev.json").read_text())["messages"]
    english = json.loads(min((data / "recall").glob("locomo-*.json")).read_text())
    return [each["content"] for each in said], [each["content"] for each in english["messages"]]


def files(data: Path) -> dict[str, bytes]:
    russian, english = paragraphs(data)
    return {
        "mmdetection.pdf": (data / "kb/documents/mmdetection-readthedocs-io-en-v2.18.0.pdf").read_bytes(),
        "скан.pdf": scan(["Договор поставки номер 4417.", "Договор действует до 30 ноября 2027 года."]),
        "отчёт.docx": docx([*russian[:25], STORE, *russian[25:50]]),
        "budget.xlsx": xlsx(english),
        "доклад.pptx": pptx([*russian[50:60], "Новый поезд: 360 км/ч. Испытания с сентября.", *russian[60:70]]),
        "novel.epub": epub([*english[:60], KEEPER, *english[60:120]]),
        "счётчики.csv": table(),
        "рецепты.odt": odt([*russian[70:80], "Для закваски нужно 135 г ржаной муки.", BREAD, *russian[80:90]]),
        "hotel.eml": mail([*english[200:240], "Booking confirmed, code QX7-2291. The kitchen closes at 21:40."]),
        "музей.html": page([*russian[90:110], "Билет в музей для студентов: 280 рублей. Музей закрыт по вторникам."]),
    }


STORE = "За склад в Твери отвечает Ирина Мелентьева: 1850 паллет."
KEEPER = "The lighthouse keeper's dog was called Brannock, and under the stairs the keeper hid a brass barometer."
BREAD = "Бородинский хлеб пеките при температуре 215 градусов."


def scan(lines: Sequence[str]) -> bytes:
    """A PDF of the picture of a page."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", 44)
    page, out = Image.new("RGB", (1654, 2339), "white"), io.BytesIO()
    for number, line in enumerate(lines):
        ImageDraw.Draw(page).text((160, 200 + number * 80), line, font=font, fill="black")
    page.save(out, "PDF", resolution=200)
    return out.getvalue()


def docx(texts: Sequence[str]) -> bytes:
    from docx import Document

    made, out = Document(), io.BytesIO()
    for text in texts:
        made.add_paragraph(text)
    made.save(out)
    return out.getvalue()


def xlsx(english: Sequence[str]) -> bytes:
    from openpyxl import Workbook

    made, out = Workbook(), io.BytesIO()
    made.active.append(["Item", "Supplier", "Cost", "Remark"])
    for number in range(150):
        made.active.append([f"item {number}", f"Supplier {number % 13}", number * 37, english[number][:80]])
    made.active.append(["greenhouse roof", "Glasbau Rentz", 7310, ""])
    made.active.append(["irrigation pump", "Hydrolund", 1290, ""])
    made.save(out)
    return out.getvalue()


def pptx(texts: Sequence[str]) -> bytes:
    from pptx import Presentation

    made, out = Presentation(), io.BytesIO()
    for text in texts:
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = "Слайд", text
    made.save(out)
    return out.getvalue()


def _zipped(parts: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def epub(texts: Sequence[str]) -> bytes:
    spine = '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>'
    return _zipped({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
        '<rootfiles><rootfile full-path="c.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "c.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest>'
        f'{spine}</manifest><spine><itemref idref="a"/></spine></package>',
        "a.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{_marked(texts)}</body></html>',
    })  # fmt: skip


def odt(texts: Sequence[str]) -> bytes:
    names = "urn:oasis:names:tc:opendocument:xmlns"
    office, text = f"{names}:office:1.0", f"{names}:text:1.0"
    body = "".join(f"<text:p>{_escaped(each)}</text:p>" for each in texts)
    return _zipped({
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": f'<office:document-content xmlns:office="{office}" xmlns:text="{text}"><office:body>'
        f"<office:text>{body}</office:text></office:body></office:document-content>",
        "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{names}:manifest:1.0"/>',
    })  # fmt: skip


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _marked(texts: Sequence[str]) -> str:
    return "".join(f"<p>{_escaped(each)}</p>" for each in texts)


def table() -> bytes:
    out = io.StringIO()
    rows = csv.writer(out, delimiter=";")
    rows.writerow(["Место", "Показания", "Кто снимал"])
    for number in range(300):
        rows.writerow([f"квартира {number}", 1000 + number * 7, f"жилец {number}"])
    rows.writerows([["подвал", 90417, "Зотов"], ["чердак", 5120, "Уварова"]])
    return out.getvalue().encode()


def mail(texts: Sequence[str]) -> bytes:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "desk@hotel.example", "anna@example.org", "Your stay"
    made["Date"] = "Mon, 02 Nov 2026 09:00:00 +0000"
    made.set_content("\n\n".join(texts))
    return bytes(made)


def page(texts: Sequence[str]) -> bytes:
    return f"<!doctype html><meta charset=utf-8><title>Музей</title>{_marked(texts)}".encode()


async def upload(client: Any, name: str, data: bytes) -> dict[str, str]:
    answer = (await client.post("/api/v1/files", params={"name": name}, content=data, timeout=300)).json()
    print(f"  {name}: {len(data):,} bytes, {answer['reading']}", file=sys.stderr)
    return {"sha256": answer["file"]["sha256"], "name": name}


async def say(client: Any, chat: str, text: str, named: Sequence[dict[str, str]] = ()) -> None:
    answer = await client.post(f"/api/v1/chats/{chat}/messages", json={"text": text, "files": list(named)}, timeout=300)
    answer.raise_for_status()


async def ask_all(client: Any, llm: Any, data: Path) -> list[dict[str, Any]]:
    named = [await upload(client, name, made) for name, made in files(data).items()]
    await say(client, "files", "Here are some files. Вот файлы.", named)
    found = []
    for name, asked in QUESTIONS.items():
        for question, answer in asked:
            await say(client, "files", question)
            given = json.dumps([each["content"] for each in llm.requests[-1].body["messages"]], ensure_ascii=False)
            found.append({"file": name, "question": question, "held": answer in given})
    return found


async def acks(client: Any, until: trio.Event) -> list[float]:
    found = []
    while not until.is_set():
        begin = time.perf_counter()
        answer = await client.post("/api/v1/facts", json={"text": f"note {len(found)} {begin}"})
        answer.raise_for_status()
        found.append((time.perf_counter() - begin) * 1000)
        await trio.sleep(0.2)
    return found


async def beside(client: Any, work: Any) -> tuple[list[float], Any]:
    ended, out = trio.Event(), {}

    async def measure() -> None:
        out["acks"] = await acks(client, ended)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(measure)
        value = await work()
        ended.set()
    return out["acks"], value


async def long_one(client: Any, llm: Any, data: Path) -> dict[str, Any]:
    content = (data / "kb-finance/documents/WALMART_2018_10K.pdf").read_bytes()
    quiet, _ = await beside(client, partial(trio.sleep, 8))

    async def work() -> float:
        begin = time.perf_counter()
        named = await upload(client, "walmart.pdf", content)
        await say(client, "long", "How many associates does Walmart employ worldwide?", [named])
        assert "associates" in json.dumps(llm.requests[-1].body)
        return time.perf_counter() - begin

    loud, seconds = await beside(client, work)

    def p99(values: Sequence[float]) -> float:
        return round(sorted(values)[int(len(values) * 0.99)], 1)

    return {
        "pages": 304,
        "seconds": round(seconds, 2),
        "acks_ms": {
            "without": {"median": round(statistics.median(quiet), 1), "p99": p99(quiet)},
            "with": {"median": round(statistics.median(loud), 1), "p99": p99(loud)},
        },
    }


async def run(data: Path, models: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        async with serve_llm() as llm:
            llm.respond = lambda _: text_reply("ok")
            stub = {"baseUrl": llm.url, "models": {"echo": {"contextTokens": 32_000}}}
            home = write_home(Path(folder), llm=llm.url, models=models, providers={"stub": stub})
            async with served(home) as server, http(server) as client:
                return {"long": await long_one(client, llm, data), "asked": await ask_all(client, llm, data)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", type=Path, default=Path(".models"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = trio.run(run, args.data, args.models.resolve())
    if args.json:
        print(json.dumps(found, ensure_ascii=False))
        return
    for each in found["asked"]:
        print("held" if each["held"] else "MISSING", each["file"], each["question"], sep="\t")
    print(f"{sum(each['held'] for each in found['asked'])} of {len(found['asked'])} answers were given to the model")
    print(found["long"])


if __name__ == "__main__":
    main()
