"""Skills: found, listed, loaded; broken ones are named and harm nobody."""

import json
import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.actor.threads import Threads
from klaw.domain.names import UserId, chat_id
from klaw.errors import ToolRefused
from klaw.llm.types import ToolCall
from klaw.toolbox.builtin.skills import MAX_SHOWN_CHARS, Catalogue, Skill, parse, skill_tools
from klaw.toolbox.executor import Executor, prepare
from klaw.toolbox.spec import Toolbox, ToolContext

TEA = "---\nname: tea\ndescription: How to make tea.\n---\n\n# Tea\n\nBoil water. Read {baseDir}/times.md.\n"


def skill(workspace, folder, text):
    (workspace / "skills" / folder).mkdir(parents=True)
    (workspace / "skills" / folder / "SKILL.md").write_text(text)


def read(text: str, folder: str) -> Skill:
    return parse(text, f"skills/{folder}")[0]


def test_heads_as_they_are_in_the_wild():
    assert read(TEA, "x").name == "tea"
    assert read("---\r\ndescription: Без имени\r\n---\r\nтекст", "чай").name == "чай"
    colon = read('---\nname: "gh"\ndescription: Use when: somebody asks for GitHub\n---\nbody', "x")
    assert (colon.name, colon.description) == ("gh", "Use when: somebody asks for GitHub")
    folded = read("---\nname: a\ndescription: >\n  one\n  two\nmetadata: {openclaw: {emoji: x}}\n---\n", "x")
    assert folded.description == "one two"
    assert not read("---\ndescription: x\ndisable-model-invocation: true\n---\n", "x").for_model
    assert len(read(f"---\ndescription: {'x' * 5000}\n---\n", "x").description) == 1024


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# no head",
        "---\nname: x",
        "---\nname: x\n---\n",
        "---\n- a\n---\n",
        "---\ndescription: [a]\n---\n",
        "---\ndescription: x\nname: ../../etc\n---\n",
        "---\ndescription: x\nname: " + "n" * 65 + "\n---\n",
        "---\n" + "[" * 5000 + "\n---\n",
        "---\n" + "a: b\n" * 10_000 + "---\n",
        "---\na: !!python/object/apply:os.system [id]\n---\n",
    ],
)
def test_broken_heads_are_refused(text):
    with pytest.raises(ToolRefused):
        parse(text, "x")


@given(st.text(max_size=200))
def test_any_head_is_read_or_refused(text):
    with suppress(ToolRefused):
        parse(f"---\n{text}\n---\nbody", "folder")


def test_skills_are_found_in_groups_and_by_links_inside_only(tmp_path):
    workspace = tmp_path / "workspace"
    skill(workspace, "tea", TEA)
    skill(workspace, "home/light", "---\ndescription: Свет в доме\n---\nвключить")
    skill(workspace, "tea2", TEA)
    skill(workspace, "broken", "nothing")
    skill(workspace, "latin", "")
    (workspace / "skills" / "latin" / "SKILL.md").write_bytes(b"---\ndescription: caf\xe9\n---\n")
    (workspace / "shared" / "walk").mkdir(parents=True)
    (workspace / "shared" / "walk" / "SKILL.md").write_text("---\ndescription: Walks\n---\nwalk")
    (workspace / "skills" / "linked").symlink_to("../shared/walk")
    (workspace / "skills" / "circle").symlink_to(".")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "SKILL.md").write_text(TEA)
    (workspace / "skills" / "out").symlink_to("../../outside")
    (workspace / "skills" / "piped").mkdir()
    os.mkfifo(workspace / "skills" / "piped" / "SKILL.md")
    found = Catalogue(workspace).refresh()
    assert [(one.name, one.folder) for one in found.skills] == [
        ("light", "skills/home/light"),
        ("tea", "skills/tea"),
        ("walk", "shared/walk"),
    ]
    problems = {problem.path: problem.message for problem in found.problems}
    assert set(problems) == {"skills/tea2", "skills/broken", "skills/latin", "skills/out", "skills/piped"}
    assert "is that of skills/tea" in problems["skills/tea2"]
    assert "leads out" in problems["skills/out"]


def test_files_are_parsed_again_only_when_they_change(tmp_path, monkeypatch):
    skill(tmp_path, "tea", TEA)
    catalogue = Catalogue(tmp_path)
    first = catalogue.refresh()
    summary = catalogue.summary()
    assert summary == "- tea: How to make tea."
    assert catalogue.refresh() is first
    (tmp_path / "skills" / "tea" / "SKILL.md").write_text(TEA.replace("How to make", "Making"))
    assert catalogue.refresh() is not first
    assert catalogue.summary() == "- tea: Making tea."


def test_a_long_list_is_cut_and_stable(tmp_path):
    for number in range(60):
        skill(tmp_path, f"skill-{number:02}", f"---\ndescription: {'очень ' * 60}\n---\nx")
    catalogue = Catalogue(tmp_path)
    assert len(catalogue.refresh().skills) == 60
    assert len(catalogue.summary()) < MAX_SHOWN_CHARS + 60
    assert catalogue.summary().splitlines()[-1].endswith("more: see skill_list")
    assert Catalogue(tmp_path).summary() == ""


@pytest.mark.parametrize("file", ["../b/SKILL.md", "../../USER.md", "/etc/passwd", "out", ".env", "a\0", "SKILL.md/x"])
def test_a_file_of_another_folder_is_never_loaded(tmp_path, file):
    workspace = tmp_path / "workspace"
    skill(workspace, "a", TEA)
    skill(workspace, "b", TEA.replace("tea", "b"))
    (workspace / "USER.md").write_text("canary")
    (workspace / "skills" / "a" / "out").symlink_to("../../USER.md")
    with pytest.raises(ToolRefused):
        Catalogue(workspace).load("tea", file)


async def test_the_tools(tmp_path):
    catalogue = Catalogue(tmp_path)
    toolbox = Toolbox()
    toolbox.register(*skill_tools(catalogue, Threads("files", 2)))
    context = ToolContext(user=UserId("anna"), chat=chat_id(UserId("anna"), "main"))
    catalogue.refresh()
    assert toolbox.offered(context) == ()
    skill(tmp_path, "tea", TEA)
    (tmp_path / "skills" / "tea" / "times.md").write_text("3 minutes")
    skill(tmp_path, "hidden", "---\ndescription: x\ndisable-model-invocation: true\n---\n")
    skill(tmp_path, "broken", "")
    catalogue.refresh()
    (listed, loads) = toolbox.describe(context)
    assert loads.description.endswith("Skills:\n- tea: How to make tea.")
    assert toolbox.describe(context) == (listed, loads)

    async def call(tool, /, **given):
        asked = [ToolCall(id="1", name=tool, arguments=json.dumps(given))]
        return (await Executor(toolbox=toolbox).run(prepare(asked, taken=(), new_id=lambda: "new", most=32), context))[
            0
        ]

    assert (await call("skill_list")).text.splitlines()[0] == "tea: How to make tea."
    assert "skills/broken cannot be used" in (await call("skill_list")).text
    body = (await call("skill_load", name="tea")).text
    assert "Read skills/tea/times.md." in body
    assert body.endswith("with file: times.md")
    assert (await call("skill_load", name="tea", file="times.md")).text == "3 minutes"
    unknown = await call("skill_load", name="coffee")
    assert unknown.failed
    assert "there are: tea" in unknown.text
