"""A program: HTML on standard input, its title and its text as Markdown on standard output (JSON). A page can be made
so that parsing it takes hours (40 kB of ``<a `` take 15 s), and only a process can be stopped. Knows nothing of Klaw.
"""

import json
import re
import resource
import sys
from urllib.parse import urljoin, urlsplit

MEMORY_BYTES = 1_500_000_000
CPU_S = 60
MAX_LINK_CHARS = 500
_DROPPED = (
    "script", "style", "noscript", "template", "svg", "annotation", "annotation-xml", "iframe", "object", "embed",
    "canvas", "audio", "video", "button", "input", "select", "textarea", "dialog", "link", "meta",
)  # fmt: skip
_MARKUP = ("a", "b", "strong", "em", "i", "u", "s", "del", "mark", "small", "sub", "sup")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


def convert(html: str, base: str, *, plain: bool = False) -> dict[str, str]:
    """``title`` and ``text`` of a page. ``plain``: for searching, without links, emphasis and escapes."""
    import warnings

    from bs4 import BeautifulSoup
    from bs4.element import Declaration, ProcessingInstruction
    from markdownify import MarkdownConverter

    warnings.simplefilter("ignore")  # of pages that look like something else
    soup = BeautifulSoup(html, "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title is not None else ""
    if soup.title is not None:
        soup.title.decompose()
    for node in soup.find_all(string=lambda text: isinstance(text, (Declaration, ProcessingInstruction))):
        node.extract()  # such as the declaration of XML
    for tag in soup.find_all(_DROPPED):
        tag.decompose()
    for tag in soup.find_all(lambda tag: tag.has_attr("hidden") or bool(_HIDDEN.search(str(tag.get("style", ""))))):
        if not tag.decomposed:
            tag.decompose()
    if soup.head is not None:
        soup.head.decompose()
    for tag in soup.find_all("a", href=True):
        link = _link(str(tag["href"]), base)
        if link is None:
            tag.unwrap()
        else:
            tag["href"] = link
    try:
        text = MarkdownConverter(
            heading_style="ATX",
            bullets="-",
            strip=["img", *(_MARKUP if plain else ())],
            escape_asterisks=not plain,
            escape_underscores=not plain,
        ).convert_soup(soup)
    except RecursionError:  # nested some hundred deep
        text = soup.get_text("\n", strip=True)
    lines = (line.rstrip() for line in text.splitlines())
    return {"title": title, "text": re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()}


def _link(href: str, base: str) -> str | None:
    try:
        link = urljoin(base, href.strip())
        usable = urlsplit(link).scheme in ("http", "https", "mailto")
    except ValueError:
        return None
    return link if usable and len(link) <= MAX_LINK_CHARS and not href.startswith("#") else None


def main() -> None:
    """The base address is the first line of the input, the page the rest."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    base, _, html = sys.stdin.buffer.read().decode("utf-8", "replace").partition("\n")
    sys.stdout.buffer.write(json.dumps(convert(html, base)).encode())


if __name__ == "__main__":
    main()
