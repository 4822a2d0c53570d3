"""What is said where no server answers, on a machine that has the service."""

from pathlib import Path

import pytest

from klaw.cli.admin_call import NoServer, call
from klaw.config.paths import Paths
from klaw.service import units


def test_whoever_finds_no_server_learns_how_to_start_or_where_to_ask_that_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = tmp_path / "klaw.service"
    unit.write_text(f"[Service]\nUser=klaw\nEnvironment=KLAW_HOME={tmp_path}/service\n")
    monkeypatch.setattr(units, "unit_in", lambda _root: unit)
    (tmp_path / "own" / "data").mkdir(parents=True)
    for home, said in (
        ("service", "start it with `systemctl start klaw`"),
        ("none", f"that of the service is asked with --home {tmp_path}/service"),
        ("own", "start it with `klaw serve`"),
    ):
        with pytest.raises(NoServer) as error:
            call(Paths.resolve(tmp_path / home), "status")
        assert str(error.value) == f"no server is running for {tmp_path / home}: {said}"
