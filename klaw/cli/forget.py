"""``klaw forget``: take a message, a topic, a fact or a person out of everything, and show what still holds it."""

import argparse
import sys
from typing import Any

from klaw.cli.admin_call import call, fail, line, print_json
from klaw.config.paths import Paths
from klaw.errors import KlawError


def forget_command(args: argparse.Namespace) -> int:
    """0: forgotten, or a dry run; 1: refused, not confirmed, or something in Klaw's own files still holds it."""
    paths = Paths.resolve(args.home)
    wanted = {
        "what": args.what,
        "user": args.user,
        "with_facts": args.with_facts,
        "with_messages": args.with_messages,
    }
    try:
        answer = call(paths, "forget", **wanted, dry_run=True)
        if not args.dry_run and (args.yes or _agreed(answer)):
            answer = call(paths, "forget", **wanted, dry_run=False)
    except KlawError as error:
        return fail(error)
    if args.json:
        print_json(answer)
    elif answer["forgotten"] or args.dry_run:
        print("\n".join(lines(answer)))
    return 0 if answer["forgotten"] or args.dry_run else 1


def _agreed(answer: dict[str, Any]) -> bool:
    if not sys.stdin.isatty():
        print("klaw: nothing was changed; say --yes to forget it, or --dry-run to see what would go", file=sys.stderr)
        return False
    print("\n".join(lines(answer)), file=sys.stderr)
    print("This cannot be undone. Forget it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes", "да")


def lines(answer: dict[str, Any]) -> list[str]:
    """What goes, or went, and what holds it."""
    done = answer["forgotten"]
    found = ["forgotten:" if done else "would be forgotten:"]
    found += [_thing(each, words=not done) for each in answer["things"] if each["goes"]]
    rows = answer["rows"]
    if rows:
        found.append("rows that quote the text: " + ", ".join(f"{name} {count}" for name, count in rows.items()))
    spared = [each for each in answer["things"] if not each["goes"]]
    if spared:
        found.append("kept; --with-facts forgets what has nothing else beside it:")
        found += [_thing(each, words=True) for each in spared]
    if answer["named"] is not None:
        found += _naming(answer)
    again = [f"{each['chat']}#{each['seq']}" for each in answer["again"]]
    if again:
        found.append(f"said again in: {', '.join(map(line, again))}; forget those too if they are to go")
    if not answer["searched"]:
        found.append("the text is too short, or too common, to be searched for elsewhere")
    found += _files("was held by" if done else "held by", answer["held"])
    if done:
        still = answer["still_held"]
        nowhere = ["a search of all files finds its words nowhere"] if answer["searched"] else []
        found += _files("STILL held by", still, remedies=True) if still else nowhere
    if answer["aside"]:
        found.append("kept aside, and not searched word by word: it may be there in another form")
        found += [f"  {line(each['path'])}: {each['remedy']}" for each in answer["aside"]]
    return found


def _thing(thing: dict[str, Any], *, words: bool) -> str:
    text = f": {line(thing['text'])}" if words and thing["text"] else ""
    remedy = f" ({line(thing['remedy'])})" if thing["remedy"] else ""
    return f"  {line(thing['kind'])} {line(thing['name'])}{text}{remedy}"


def _naming(answer: dict[str, Any]) -> list[str]:
    """What names a person, and what of it stays."""
    named = answer["named"]
    found = [f"looked for the names: {', '.join(map(line, named['names']))}"]
    found += [f"  fact {line(each['id'])}: {line(each['text'])}" for each in named["facts"]]
    if named["namesakes"]:
        found.append(f"others have one of these names too: {', '.join(map(line, named['namesakes']))}")
    if named["staying"]:
        some = [f"{each['chat']}#{each['seq']}" for each in named["staying"]]
        more = f" and {named['messages'] - len(some)} more" if named["messages"] > len(some) else ""
        found.append(
            f"kept: messages that name them: {', '.join(map(line, some))}{more}; --with-messages forgets them too"
        )
        found += _listed("topics that name them", [str(each) for each in named["topics"]])
        found += _listed("summaries that name them", named["summaries"])
    if not answer["forgotten"] and named["others"]:
        found.append("kept: named also in: " + _counted(named["others"]))
    if answer["forgotten"]:
        still = answer["still_named"]
        found.append(f"STILL named in: {_counted(still)}" if still else "no row names them any more")
    return found


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{line(name)} {count}" for name, count in counts.items())


def _listed(name: str, values: list[str], note: str = "") -> list[str]:
    return [f"  {name}: {', '.join(map(line, values))}{note}"] if values else []


def _files(head: str, held: list[dict[str, Any]], *, remedies: bool = False) -> list[str]:
    if not held:
        return []
    told = [f": {each['remedy']}" if remedies else "" for each in held]
    files = [f"{line(each['path'])} ({each['kind']}, {each['count']})" for each in held]
    return [f"{head}:", *(f"  {file}{remedy}" for file, remedy in zip(files, told, strict=True))]
