"""What a graph says, in short sentences with labels in place of IRIs: «Marie Curie — birthplace: Warsaw». Pure."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

import attrs

from klaw.domain import tokens
from klaw.domain.text import clean_output, cut, one_line
from klaw.knowledge.graph.matching import relevance
from klaw.knowledge.graph.sparql import NAMES, OTHER_NAMES, RDF, RDFS, Blank, Iri, Literal, Row, Term

MAX_VALUE = 600
"""Characters of one value."""
MAX_VALUES = 12
MAX_TOKENS = 300
"""Length of the text about one thing."""

_SKOS = "http://www.w3.org/2004/02/skos/core#"
_OWL = "http://www.w3.org/2002/07/owl#"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_SCHEMA = ("http://schema.org/", "https://schema.org/")
_RUSSIAN = {
    f"{RDF}type": "тип",
    f"{RDFS}comment": "описание",
    "http://purl.org/dc/terms/description": "описание",
    **{f"{schema}description": "описание" for schema in _SCHEMA},
    f"{RDFS}subClassOf": "подкласс",
    f"{_SKOS}definition": "определение",
    f"{_SKOS}broader": "шире",
    f"{_SKOS}narrower": "уже",
    f"{_SKOS}related": "связано",
    **dict.fromkeys(OTHER_NAMES, "также"),
}
"""Properties of everybody's vocabularies, which a graph seldom labels."""
_ENGLISH = {f"{RDFS}subClassOf": "subclass of", **dict.fromkeys(OTHER_NAMES, "also called")}
_SILENT = frozenset(
    {
        *NAMES,
        f"{_OWL}sameAs",
        f"{RDFS}isDefinedBy",
        f"{RDFS}seeAlso",
        f"{RDF}first",
        f"{RDF}rest",
        "http://xmlns.com/foaf/0.1/depiction",
        "http://xmlns.com/foaf/0.1/isPrimaryTopicOf",
        "http://www.w3.org/ns/prov#wasDerivedFrom",
    }
)
"""Properties that tell a reader nothing."""
_CAMEL = re.compile(r"(?<=[a-zа-я0-9])(?=[A-ZА-Я])")
_LAST = re.compile(r"[^/#:]+(?=[/#:]*$)")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_LETTER = re.compile(r"[^\W\d_]")


@attrs.frozen(kw_only=True)
class Relation:
    subject: str
    """IRI; empty: what the passage is about."""
    path: tuple[str, ...]
    """IRIs of the property and, inside of things without a name, of theirs."""
    inside: str = ""
    """Which thing without a name is the value of the first property."""
    value: Iri | Literal
    distance: int
    """0: said of the thing, 1: said with it, 2: said of what is said of it."""


@attrs.frozen(kw_only=True)
class Labels:
    names: Mapping[str, str]
    languages: Sequence[str]

    def of(self, iri: str) -> str:
        """Its label, else the last part of its IRI."""
        return self.names.get(iri) or local_name(iri).replace("_", " ")

    def property(self, iri: str) -> str:
        if iri in self.names:
            return self.names[iri]
        known = _RUSSIAN if self.languages[0] == "ru" else _ENGLISH
        return known.get(iri) or _CAMEL.sub(" ", local_name(iri)).replace("_", " ").lower()


def choose_labels(rows: Iterable[Row], languages: Sequence[str]) -> Labels:
    """Of what ``sparql.labels_of`` found, the best of each thing: by language, by property, the shortest."""
    best: dict[str, tuple[int, int, int, str]] = {}
    for row in rows:
        thing, property_, label = row.get("x"), row.get("n"), row.get("l")
        if not (isinstance(thing, Iri) and isinstance(property_, Iri) and isinstance(label, Literal)):
            continue
        text = plain(label.value)
        if label.language in languages and property_.value in NAMES and text:
            rank = languages.index(label.language), NAMES.index(property_.value), len(text), text
            best[thing.value] = min(best.get(thing.value, rank), rank)
    return Labels(names={iri: rank[-1] for iri, rank in best.items()}, languages=languages)


def local_name(iri: str) -> str:
    """The last part of an IRI that says something; of a mail address or the like what follows the scheme."""
    if "/" not in iri and "#" not in iri:
        return plain(unquote(iri.partition(":")[2])) or iri
    last = _LAST.search(iri)
    return plain(unquote(last[0])) if last else plain(iri)


def plain(text: str) -> str:
    return cut(one_line(clean_output(text)), MAX_VALUE)


def value_text(value: Term, labels: Labels) -> str:
    """Numbers and dates as they are, others with their unit; nothing of a thing without a name."""
    if isinstance(value, Iri):
        return labels.of(value.value)
    if isinstance(value, Blank):
        return ""
    text = plain(value.value)
    if not value.datatype or value.datatype.startswith((_XSD, RDF)) or _LETTER.search(text):
        return text
    return f"{text} {_CAMEL.sub(' ', labels.of(value.datatype))}"


def said_of(rows: Iterable[Row]) -> list[Relation]:
    """What ``sparql.said_of`` found."""
    found = []
    for row in rows:
        path, value, inside = _path(row, "pqr"), row.get("v"), row.get("o")
        if path and isinstance(value, Iri | Literal) and not (len(path) > 1 and _SILENT & {*path[1:]} - {*NAMES}):
            name = inside.name if isinstance(inside, Blank) else ""
            found.append(Relation(subject="", path=path, inside=name, value=value, distance=0))
    return found


def said_with(rows: Iterable[Row], thing: str) -> list[Relation]:
    """What ``sparql.said_with`` found."""
    found = []
    for row in rows:
        path, subject = _path(row, "pq"), row.get("s")
        if path and isinstance(subject, Iri) and subject.value != thing:
            found.append(Relation(subject=subject.value, path=path, value=Iri(thing), distance=1))
    return found


def said_beyond(rows: Iterable[Row], thing: str) -> list[Relation]:
    """What ``sparql.said_of_all`` found."""
    found = []
    for row in rows:
        path, subject, value = _path(row, "p"), row.get("e"), row.get("v")
        if path and isinstance(subject, Iri) and isinstance(value, Iri | Literal) and value != Iri(thing):
            found.append(Relation(subject=subject.value, path=path, value=value, distance=2))
    return found


def _path(row: Row, names: str) -> tuple[str, ...]:
    """Empty where the property tells a reader nothing."""
    path = tuple(step.value for name in names if isinstance(step := row.get(name), Iri))
    return path if path and path[0] not in _SILENT else ()


def things(relations: Iterable[Relation]) -> list[str]:
    """The IRIs that sentences speak of, once each."""
    found: dict[str, None] = {}
    for each in relations:
        datatype = each.value.datatype if isinstance(each.value, Literal) else each.value.value
        found.update(dict.fromkeys((each.subject, *each.path, datatype)))
    return [iri for iri in found if iri]


def neighbours(relations: Iterable[Relation], labels: Labels, wanted: frozenset[str]) -> list[str]:
    """The things that stand in what is said of the thing, those first that stand under what is asked for."""
    found: dict[str, int] = {}
    for each in relations:
        if isinstance(each.value, Iri) and each.distance == 0 and each.path[0] != f"{RDF}type":
            score = relevance(" ".join(map(labels.property, each.path)), wanted)
            found[each.value.value] = max(score, found.get(each.value.value, 0))
    return sorted(found, key=lambda iri: (-found[iri], iri))


def sentences(name: str, relations: Iterable[Relation], labels: Labels, wanted: frozenset[str]) -> list[str]:
    """One sentence for each property; those first that have stems of the question, without those of the name."""
    groups: dict[tuple[int, str, str, str], list[Relation]] = {}
    for each in relations:
        groups.setdefault((each.distance, each.subject, each.path[0], each.inside), []).append(each)
    found = []
    for (distance, subject, first, _), group in groups.items():
        who = labels.of(subject) if subject else name
        words = labels.property(first)
        if len(group[0].path) > 1 and distance == 1:
            words = ", ".join(map(labels.property, group[0].path))
        said = _values(group, name, labels)
        score = relevance(f"{words} {said}" if distance != 1 else f"{words} {who}", wanted)
        if said and (distance < 2 or score):
            found.append((-score, distance, words.casefold(), who, said, f"{who} — {words}: {said}"))
    return list(dict.fromkeys(sentence for *_, sentence in sorted(found)))


def _values(group: Sequence[Relation], name: str, labels: Labels) -> str:
    """The values of one property; for a thing without a name its own properties with theirs."""
    parts: dict[str, list[Iri | Literal]] = {}
    for each in group:
        inner = each.path[1:] if each.distance == 0 else ()
        if inner[-1:] != (f"{RDF}type",):
            title = ", ".join(labels.property(step) for step in inner if step not in NAMES)
            parts.setdefault(title, []).append(each.value)
    said = []
    for title, values in sorted(parts.items()):
        texts = [name] if group[0].distance == 1 else _texts(values, labels)
        said.append(f"{title}: {', '.join(texts)}" if title else ", ".join(texts))
    return "; ".join(said)


def _texts(values: Sequence[Term], labels: Labels) -> list[str]:
    """Values once each; texts only in the best of their languages."""
    spoken = {each.language for each in values if isinstance(each, Literal) and each.language}
    best = next((each for each in labels.languages if each in spoken), min(spoken, default=""))
    kept = (each for each in values if not isinstance(each, Literal) or each.language in ("", best))
    texts = {value_text(each, labels) for each in kept}
    # Numbers by their size, before words.
    ordered = sorted(texts, key=lambda text: (float(text) if _NUMBER.fullmatch(text) else math.inf, text))
    return ordered[:MAX_VALUES] + (["…"] if len(ordered) > MAX_VALUES else [])


def fitting_lines(lines: Sequence[str]) -> str:
    """As many whole sentences as there is room for; of a first one that is too long its beginning."""
    kept: list[str] = []
    left = MAX_TOKENS
    for line in lines:
        need = tokens.estimate(line) + 1
        if need > left and kept:
            break
        kept.append(line if need <= left else cut(line, 2 * MAX_TOKENS))
        left -= need
    return "\n".join(kept)
