"""How long Pygments takes for code that is made for it, of the languages that the terminal colours and as long as it
colours: repeated characters and short patterns, behind different beginnings. ``--all`` tries all languages. Prints the
CPU seconds and the pattern of the worst of each.
"""

import argparse
import itertools
import time
from multiprocessing import Pool

from pygments.lexers import get_all_lexers, get_lexer_by_name

from klaw.client.markdown import COLOURED, MAX_CODE_CHARS

SIGNS = " \t\n\"'`a1A_.,:;=+-*/\\\\#@$%&|!?~^<>()[]{}"
WORDS = ("/*", "<!--", "(*", "{{", "${", "#{", "<<a\n", "if ", "end ", "begin ", "::", "=>", '"""', 'f"{')
BEGINNINGS = ("", "a", "\n")


def worst(language: str) -> tuple[float, str, str]:
    """Seconds, the language, and the pattern that took them."""
    lexer, found = get_lexer_by_name(language), (0.0, language, "")
    pairs = map("".join, itertools.product("a \n", SIGNS))
    for begin, pattern in itertools.product(BEGINNINGS, (*SIGNS, *WORDS, *pairs)):
        text = (begin + pattern * MAX_CODE_CHARS)[:MAX_CODE_CHARS]
        before = time.process_time()
        for _ in lexer.get_tokens(text):
            pass
        found = max(found, (time.process_time() - before, language, begin + pattern))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="all languages of Pygments: takes hours")
    languages = [names[0] for _, names, _, _ in get_all_lexers() if names] if parser.parse_args().all else COLOURED
    with Pool() as pool:
        for seconds, language, pattern in sorted(pool.imap_unordered(worst, sorted(languages)), reverse=True):
            print(f"{seconds:8.3f}  {language:20} {pattern!r}")


if __name__ == "__main__":
    main()
