"""The skills of the workspace: found, parsed and kept as long as their files do not change.

They are the agent's abilities, the same for all users; only the owner of the workspace can change them. A broken skill
is listed as a problem and never in the way of the others. Reading blocks; run ``refresh`` and ``load`` in a thread.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import attrs

from klaw.domain.names import LOCAL_USER
from klaw.domain.prompt_files import SKILLS_FOLDER as FOLDER
from klaw.toolbox.files import reading
from klaw.toolbox.files.beneath import Root, root_of
from klaw.toolbox.files.names import FileRefused
from klaw.toolbox.files.text import decode
from klaw.toolbox.skills.parse import SkillBroken, parse

FILE = "SKILL.md"
MAX_SKILL_BYTES = 256 * 1024
MAX_DEPTH = 4
"""Skills may be grouped in folders: skills/home/light/SKILL.md."""
MAX_SKILLS = 200
MAX_SHOWN_CHARS = 4000
"""Of the list that every request carries; the rest is found with ``skill_list``."""
_MAX_LINE_CHARS = 200
_MAX_FILES_SHOWN = 50


@attrs.frozen(kw_only=True)
class Skill:
    """A skill that can be used."""

    name: str
    description: str
    folder: str
    """Relative to the workspace."""
    for_model: bool


@attrs.frozen(kw_only=True)
class SkillProblem:
    """A folder that is no usable skill, and why."""

    folder: str
    why: str


@attrs.frozen(kw_only=True)
class Skills:
    """All skills at one moment, in the order of their names."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()

    @property
    def offered(self) -> tuple[Skill, ...]:
        """Those that the model is told of."""
        return tuple(skill for skill in self.skills if skill.for_model)


_Stamp = tuple[str, float, int]


@attrs.define
class Catalogue:
    """Knows the skills of one workspace."""

    workspace: Path
    _skills: Skills = Skills()
    _stamps: tuple[_Stamp, ...] = ()
    _lock: threading.Lock = attrs.Factory(threading.Lock)

    @property
    def known(self) -> Skills:
        """As of the last refresh. Does not look at the disk."""
        return self._skills

    def refresh(self) -> Skills:
        """Look at the folder again; files are read only when one of them changed."""
        with self._lock:
            problems: list[SkillProblem] = []
            found = sorted(self._find(FOLDER, 0, set(), problems))
            stamps = (*found, *((problem.folder, 0.0, len(problem.why)) for problem in problems))
            if stamps != self._stamps:
                self._skills = self._read(found, problems)
                self._stamps = stamps
            return self._skills

    def summary(self) -> str:
        """One line for each skill that the model may choose. The same skills give the same bytes."""
        lines: list[str] = []
        room = MAX_SHOWN_CHARS
        offered = self._skills.offered
        for number, skill in enumerate(offered):
            line = f"- {skill.name}: {_short(skill.description)}"
            room -= len(line) + 1
            if room < 0:
                lines.append(f"- and {len(offered) - number} more: see skill_list")
                break
            lines.append(line)
        return "\n".join(lines)

    def load(self, name: str, file: str | None = None) -> str:
        """The instructions of a skill, or another file of its folder.

        Args:
            name: of the skill.
            file: relative to the skill's folder; None for the instructions.

        Raises:
            FileRefused: there is no such skill or file, or it may not be read.
        """
        skills = self.refresh().skills
        skill = next((skill for skill in skills if skill.name == name), None)
        if skill is None:
            names = ", ".join(skill.name for skill in skills if skill.for_model) or "none"
            raise FileRefused(f"there is no skill {name[:64]!r}; there are: {names}")
        root = self._root()
        # A root of its own: '..' in a file's name cannot leave the skill's folder.
        own = attrs.evolve(root, below=(*root.below, *skill.folder.split("/")), closed=frozenset())
        if file is not None:
            return decode(reading.read_bytes(own, file), file)
        try:
            body = parse(decode(reading.read_bytes(own, FILE, MAX_SKILL_BYTES), FILE), skill.name).body
        except SkillBroken as broken:
            raise FileRefused(f"{skill.folder}: {broken}") from broken
        body = body.replace("{baseDir}", skill.folder)
        files = [entry.path for entry in reading.find(own, "**/*", _MAX_FILES_SHOWN).entries if entry.path != FILE]
        if files:
            body += "\n\nFiles of this skill, for skill_load with file: " + ", ".join(files)
        return body

    def _root(self) -> Root:
        return root_of(self.workspace, LOCAL_USER)

    def _find(self, folder: str, depth: int, seen: set[str], problems: list[SkillProblem]) -> Iterator[_Stamp]:
        """Folders with a SKILL.md, by their paths without links; each once, so that links in a circle end."""
        try:
            entries = reading.list_folder(self._root(), folder, MAX_SKILLS * 5).entries
        except FileRefused as refused:
            if depth > 0:
                problems.append(SkillProblem(folder=folder, why=str(refused)))
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

    def _read(self, found: list[_Stamp], problems: list[SkillProblem]) -> Skills:
        skills: dict[str, Skill] = {}
        for folder, _, _ in found[:MAX_SKILLS]:
            try:
                data = reading.read_bytes(self._root(), f"{folder}/{FILE}", MAX_SKILL_BYTES)
                head = parse(decode(data, FILE), folder.rpartition("/")[2])
            except (FileRefused, SkillBroken) as error:
                problems.append(SkillProblem(folder=folder, why=str(error)))
                continue
            if head.name in skills:
                why = f"its name {head.name} is that of {skills[head.name].folder}"
                problems.append(SkillProblem(folder=folder, why=why))
                continue
            skills[head.name] = Skill(
                name=head.name, description=head.description, folder=folder, for_model=head.for_model
            )
        problems += [
            SkillProblem(folder=folder, why=f"there are more than {MAX_SKILLS} skills")
            for folder, _, _ in found[MAX_SKILLS:]
        ]
        return Skills(
            skills=tuple(skills[name] for name in sorted(skills)),
            problems=tuple(sorted(problems, key=lambda problem: problem.folder)),
        )


def _short(description: str) -> str:
    return description if len(description) <= _MAX_LINE_CHARS else description[: _MAX_LINE_CHARS - 1].rstrip() + "…"
