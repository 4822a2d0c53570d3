"""`klaw forget` and `klaw topics` on a running server: the text is nowhere, also after a restart."""

import json
from pathlib import Path

from klaw.domain.names import UserId
from tests.support.forgetting import holding, secret_past
from tests.support.server import run_klaw, served, write_home
from tests.support.stores import running_store

TEXT = "Мой тайный код: Kanarienvogel8842, никому не говори."


async def test_forget_on_a_running_server(tmp_path: Path) -> None:
    home = write_home(tmp_path)
    data = home / "data"
    data.mkdir(exist_ok=True)
    async with running_store(data) as store:
        await secret_past(store, data, TEXT, user=UserId("local"))
    where = ("--home", str(home))
    async with served(home) as server:
        code, out, _ = await run_klaw("topics", "list", *where)
        assert (code, "main" in out) == (0, True)
        code, out, _ = await run_klaw("topics", "show", "1", *where)
        assert (code, TEXT in out) == (0, True)
        code, out, _ = await run_klaw("forget", "main#2", "--dry-run", *where)
        assert (code, "would be forgotten" in out, TEXT in out) == (0, True, True)
        code, _, err = await run_klaw("forget", "main#2", *where)
        assert (code, "--yes" in err) == (1, True)
        assert holding(data, TEXT)
        code, out, err = await run_klaw("forget", "main#2", "--with-facts", "--yes", "--json", *where)
        assert code == 0, err
        answer = json.loads(out)
        assert (answer["forgotten"], answer["still_held"]) == (True, [])
        assert holding(home, TEXT, "Kanarienvogel8842") == {}
        code, _, err = await run_klaw("forget", "main#2", "--yes", *where)
        assert (code, "forgotten already" in err) == (1, True)
        code, _, err = await run_klaw("topics", "show", "1", *where)
        assert (code, "no such topic" in err) == (1, True)
        await server.kill()
        await server.start()
        assert holding(home, TEXT, "Kanarienvogel8842") == {}
