"""Skills: folders of the workspace with a SKILL.md that tells the model how to do something, and the tools for them.

They are the same for all users; only the owner of the workspace can change them. A broken one is listed as a problem.
The list of skills is part of the description of ``skill_load``; the instructions are loaded when they are needed.

A SKILL.md is a head in YAML between two lines of three dashes, then Markdown: the format of Agent Skills and OpenClaw.
Many have a description with a colon in it, which is no YAML; their ``name: …`` lines are read as plain text then.
"""

import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml

from klaw.actor.threads import Threads
from klaw.domain.names import LOCAL_USER
from klaw.domain.prompt_files import SKILLS_FOLDER as FOLDER
from klaw.domain.text import cut, normalized
from klaw.errors import Problem, ToolRefused
from klaw.toolbox.files import access
from klaw.toolbox.files.beneath import Root, root_of
from klaw.toolbox.files.text import decode
from klaw.toolbox.spec import Permission, ToolContext, ToolSpec, tool

MAX_HEAD_CHARS = 16_000
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024

_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LINE = re.compile(r"^([A-Za-z][A-Za-z_-]*):[ \t]*(.*)$")


@attrs.frozen(kw_only=True)
class Skill:
    name: str
    description: str
    folder: str
    """Relative to the workspace."""
    for_model: bool
    """It may be offered to the model (no ``disable-model-invocation``)."""


def parse(text: str, folder: str) -> tuple[Skill, str]:
    """Read a SKILL.md: the skill, and its instructions. Raises ToolRefused: no head, no description, or a bad name."""
    head, body = _split(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    values = _values(head)
    description = " ".join(_text(values, "description").split())
    if not description:
        raise ToolRefused("the head has no description")
    skill = Skill(
        name=_name(_text(values, "name") or folder.rpartition("/")[2]),
        description=cut(description, MAX_DESCRIPTION_CHARS),
        folder=folder,
        for_model=str(values.get("disable-model-invocation", "")).lower() not in ("true", "yes", "on"),
    )
    return skill, body.strip("\n")


def _split(text: str) -> tuple[str, str]:
    opening = _FENCE.match(text)
    closing = _FENCE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        raise ToolRefused("it does not begin with a head between two lines of ---")
    if closing.start() - opening.end() > MAX_HEAD_CHARS:
        raise ToolRefused(f"its head is longer than {MAX_HEAD_CHARS} characters")
    return text[opening.end() : closing.start()], text[closing.end() :]


def _values(head: str) -> Mapping[Any, Any]:
    try:
        values = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = {found[1]: found[2].strip().strip("\"'") for line in head.splitlines() if (found := _LINE.match(line))}
    if not isinstance(values, dict):
        raise ToolRefused("its head is not a list of names and values")
    return values


def _text(values: Mapping[Any, Any], key: str) -> str:
    value = values.get(key)
    if value is None or isinstance(value, (dict, list)):
        return ""
    return str(value).strip()


def _name(text: str) -> str:
    name = normalized("NFC", text)
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise ToolRefused(f"its name has {len(name)} characters, 1 to {MAX_NAME_CHARS} are possible")
    if not name[0].isalnum() or not all(each in "_-. " or unicodedata.category(each)[0] in "LNM" for each in name):
        raise ToolRefused("its name has other characters than letters, digits, '_', '-', '.' and spaces")
    return name


FILE = "SKILL.md"
MAX_SKILL_BYTES = 256 * 1024
MAX_DEPTH = 4
"""Skills may be grouped in folders: skills/home/light/SKILL.md."""
MAX_SKILLS = 200
MAX_SHOWN_CHARS = 4000
_MAX_LINE_CHARS = 200
_MAX_FILES_SHOWN = 50


@attrs.frozen(kw_only=True)
class Skills:
    skills: tuple[Skill, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def offered(self) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.skills if skill.for_model)


_Stamp = tuple[str, float, int]


@attrs.define
class Catalogue:
    workspace: Path
    known: Skills = Skills()
    _stamps: tuple[_Stamp, ...] = ()
    _lock: threading.Lock = attrs.Factory(threading.Lock)

    def refresh(self) -> Skills:
        """Look at the folder again; files are read only when one of them changed."""
        with self._lock:
            problems: list[Problem] = []
            found = sorted(self._find(FOLDER, 0, set(), problems))
            stamps = (*found, *((problem.path, 0.0, len(problem.message)) for problem in problems))
            if stamps != self._stamps:
                self.known = self._read(found, problems)
                self._stamps = stamps
            return self.known

    def summary(self) -> str:
        """One line for each skill that the model may choose. The same skills give the same bytes."""
        lines: list[str] = []
        room, offered = MAX_SHOWN_CHARS, self.known.offered
        for number, skill in enumerate(offered):
            line = f"- {skill.name}: {cut(skill.description, _MAX_LINE_CHARS)}"
            room -= len(line) + 1
            if room < 0:
                lines.append(f"- and {len(offered) - number} more: see skill_list")
                break
            lines.append(line)
        return "\n".join(lines)

    def load(self, name: str, file: str | None = None) -> str:
        """The instructions of a skill, or another file of its folder. Raises ToolRefused: it is not there or closed."""
        skills = self.refresh().skills
        skill = next((skill for skill in skills if skill.name == name), None)
        if skill is None:
            names = ", ".join(skill.name for skill in skills if skill.for_model) or "none"
            raise ToolRefused(f"there is no skill {name[:64]!r}; there are: {names}")
        root = self._root()
        # A root of its own: '..' in a file's name cannot leave the skill's folder.
        own = attrs.evolve(root, below=(*root.below, *skill.folder.split("/")), closed=frozenset())
        if file is not None:
            return decode(access.read_bytes(own, file), file)
        try:
            _, body = parse(decode(access.read_bytes(own, FILE, MAX_SKILL_BYTES), FILE), skill.folder)
        except ToolRefused as broken:
            raise ToolRefused(f"{skill.folder}: {broken}") from broken
        body = body.replace("{baseDir}", skill.folder)
        files = [entry.path for entry in access.find(own, "**/*", _MAX_FILES_SHOWN).entries if entry.path != FILE]
        if files:
            body += "\n\nFiles of this skill, for skill_load with file: " + ", ".join(files)
        return body

    def _root(self) -> Root:
        return root_of(self.workspace, LOCAL_USER)

    def _find(self, folder: str, depth: int, seen: set[str], problems: list[Problem]) -> Iterator[_Stamp]:
        """Folders with a SKILL.md, by their paths without links; each once, so that links in a circle end."""
        try:
            entries = access.list_folder(self._root(), folder, MAX_SKILLS * 5).entries
        except ToolRefused as refused:
            if depth > 0:
                problems.append(Problem(path=folder, message=str(refused)))
            return
        real = entries[0].path.rpartition("/")[0] if entries else folder
        if real in seen:
            return
        seen.add(real)
        own = next((entry for entry in entries if entry.path == f"{real}/{FILE}"), None)
        if own is not None and depth > 0:
            yield real, own.modified, own.size
        elif depth < MAX_DEPTH:
            for entry in entries:
                if entry.kind == "folder" or (entry.kind == "link" and depth == 0):
                    yield from self._find(entry.path, depth + 1, seen, problems)

    def _read(self, found: list[_Stamp], problems: list[Problem]) -> Skills:
        skills: dict[str, Skill] = {}
        for folder, _, _ in found[:MAX_SKILLS]:
            try:
                data = access.read_bytes(self._root(), f"{folder}/{FILE}", MAX_SKILL_BYTES)
                skill, _ = parse(decode(data, FILE), folder)
            except ToolRefused as error:
                problems.append(Problem(path=folder, message=str(error)))
                continue
            first = skills.setdefault(skill.name, skill)
            if first is not skill:
                problems.append(Problem(path=folder, message=f"its name {skill.name} is that of {first.folder}"))
        too_many = f"there are more than {MAX_SKILLS} skills"
        problems += [Problem(path=folder, message=too_many) for folder, _, _ in found[MAX_SKILLS:]]
        return Skills(
            skills=tuple(skills[name] for name in sorted(skills)),
            problems=tuple(sorted(problems, key=lambda problem: problem.path)),
        )


def skill_tools(catalogue: Catalogue, threads: Threads) -> tuple[ToolSpec, ...]:
    """Offered only where there are skills. The caller refreshes the catalogue before each turn."""

    def any_skills(_context: ToolContext) -> bool:
        return bool(catalogue.known.offered)

    @tool(permission=Permission.READ, when=any_skills)
    async def skill_list(_context: ToolContext) -> str:
        """List all skills with their full descriptions."""
        found = await threads.run(catalogue.refresh, abandon=True)
        lines = [f"{skill.name}: {skill.description}" for skill in found.offered]
        lines += [f"[{problem.path} cannot be used: {problem.message}]" for problem in found.problems]
        return "\n".join(lines) or "(no skills)"

    @tool(permission=Permission.READ, when=any_skills)
    async def skill_load(_context: ToolContext, name: str, file: str | None = None) -> str:
        """Load the instructions of a skill (or a file of its folder) before doing what the skill is for."""
        return await threads.run(catalogue.load, name, file, abandon=True)

    return skill_list, attrs.evolve(skill_load, ends=lambda: f" Skills:\n{catalogue.summary()}")
