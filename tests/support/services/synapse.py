"""A real Matrix homeserver, Synapse, and the people who chat there.

In a test::

    async def test_hello(synapse: Synapse) -> None:
        anna, klaw = await synapse.person("anna"), await synapse.person("klaw")
        room = await anna.create_room(invite=[klaw])
        await klaw.join(room)
        await anna.say(room, "Hello")

Synapse has an environment of its own, which ``make test-matrix`` makes. One homeserver serves all tests of a process:
each has users and rooms of its own.
"""

import hashlib
import hmac
import json
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import httpx2
import yaml

from tests.support.server import free_port
from tests.support.waiting import until

MISSING = (
    "needs Synapse: `make test-matrix` installs it and runs these tests (or let KLAW_TEST_SYNAPSE name its environment)"
)
SERVER_NAME = "klaw.test"
SECRET = "only-for-tests"
UPLOAD_BYTES = 30_000_000
UNLIMITED = {"per_second": 100_000, "burst_count": 100_000}


def environment() -> Path | None:
    """The folder of Synapse's Python environment, if it is there."""
    folder = Path(os.environ.get("KLAW_TEST_SYNAPSE") or Path.home() / ".cache" / "klaw-tests" / "synapse")
    return folder if (folder / "bin" / "synapse_homeserver").exists() else None


class Synapse:
    """A homeserver on a folder of its own. Keeps port and data when it is stopped and started again."""

    def __init__(self, environment: Path, folder: Path, **settings: Any) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._python, self._folder = environment / "bin" / "python", folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        resources = [{"names": ["client"]}]
        listener = {"port": port, "bind_addresses": ["127.0.0.1"], "type": "http", "resources": resources}
        handlers = {"file": {"class": "logging.FileHandler", "filename": str(folder / "log")}}
        (folder / "log.yaml").write_text(
            json.dumps({"version": 1, "handlers": handlers, "root": {"level": "WARNING", "handlers": ["file"]}})
        )
        (folder / "signing.key").write_text(f"ed25519 a_test {'A' * 43}\n")
        limits = ("message", "registration", "registration_token_validity", "joins_per_room", "invites", "media_create")
        config = {
            "server_name": SERVER_NAME,
            "listeners": [listener],
            "database": {"name": "sqlite3", "args": {"database": str(folder / "homeserver.db")}},
            "log_config": str(folder / "log.yaml"),
            "media_store_path": str(folder / "media"),
            "signing_key_path": str(folder / "signing.key"),
            "registration_shared_secret": SECRET,
            "report_stats": False,
            "trusted_key_servers": [],
            "max_upload_size": UPLOAD_BYTES,
            "bcrypt_rounds": 4,
            "rc_joins": {"local": UNLIMITED},
            "rc_login": {"address": UNLIMITED, "account": UNLIMITED},
            **{f"rc_{each}": UNLIMITED for each in limits if each != "invites"},
            "rc_invites": {"per_room": UNLIMITED, "per_user": UNLIMITED, "per_issuer": UNLIMITED},
            **settings,
        }
        (folder / "homeserver.yaml").write_text(yaml.safe_dump(config))

    async def start(self) -> None:
        """Start it and wait until it answers; nothing if it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [self._python, "-m", "synapse.app.homeserver", "--config-path", self._folder / "homeserver.yaml"]
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(  # noqa: ASYNC220  it outlives the test's loop
                command, cwd=self._folder, stdout=output, stderr=output
            )
        await until(self._answers, every_s=0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    async def person(self, name: str, **changes: Any) -> "Person":
        """A new user, logged in, whose name begins with ``name`` and is like no other."""
        name = f"{name}-{secrets.token_hex(4)}"
        async with httpx2.AsyncClient(base_url=self.url, trust_env=False) as client:
            nonce = (await client.get("/_synapse/admin/v1/register")).json()["nonce"]
            password = secrets.token_hex(8)
            told = f"{nonce}\0{name}\0{password}\0notadmin".encode()
            mac = hmac.new(SECRET.encode(), told, hashlib.sha1).hexdigest()
            asked = {"nonce": nonce, "username": name, "password": password, "admin": False, "mac": mac, **changes}
            answer = await client.post("/_synapse/admin/v1/register", json=asked)
            assert answer.status_code == 200, answer.text
        login = answer.json()
        return Person(url=self.url, id=login["user_id"], token=login["access_token"], password=password)

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "output").read_text()[-4000:]
        async with httpx2.AsyncClient(trust_env=False) as client:
            try:
                return (await client.get(f"{self.url}/health")).status_code == 200
            except httpx2.TransportError:
                return False


@attrs.frozen(kw_only=True)
class Person:
    """Somebody with an account and a client."""

    url: str
    id: str
    token: str = attrs.field(repr=False)
    password: str = attrs.field(repr=False)

    @property
    def name(self) -> str:
        """The local part of the id, which is also what others see at first."""
        return self.id.removeprefix("@").partition(":")[0]

    async def ask(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """A request below ``/_matrix/client/``; returns its JSON. Fails the test where the homeserver refuses."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            address = path if path.startswith("/") else f"/_matrix/client/v3/{path}"
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            answer = await client.request(method, self.url + address, content=data, params=params, headers=headers)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if "json" in answer.headers["content-type"] else answer.content

    # -- rooms ---------------------------------------------------------------------------------------------------------

    async def create_room(
        self, *, invite: Sequence["Person"] = (), name: str = "", encrypted: bool = False, **more: Any
    ) -> str:
        algorithm = {"algorithm": "m.megolm.v1.aes-sha2"}
        state = [{"type": "m.room.encryption", "state_key": "", "content": algorithm}] if encrypted else []
        body = {"preset": "private_chat", "invite": [each.id for each in invite], "initial_state": state}
        return str(
            (await self.ask("POST", "createRoom", {**body, **({"name": name} if name else {}), **more}))["room_id"]
        )

    async def invite(self, room: str, whom: "Person") -> None:
        await self.ask("POST", f"rooms/{quote(room)}/invite", {"user_id": whom.id})

    async def join(self, room: str) -> None:
        await self.ask("POST", f"join/{quote(room)}", {})

    async def leave(self, room: str) -> None:
        await self.ask("POST", f"rooms/{quote(room)}/leave", {})

    async def kick(self, room: str, whom: "Person") -> None:
        await self.ask("POST", f"rooms/{quote(room)}/kick", {"user_id": whom.id})

    async def set_state(self, room: str, kind: str, content: Mapping[str, Any]) -> str:
        return str((await self.ask("PUT", f"rooms/{quote(room)}/state/{kind}/", content))["event_id"])

    async def rename(self, name: str) -> None:
        await self.ask("PUT", f"profile/{quote(self.id)}/displayname", {"displayname": name})

    # -- messages ------------------------------------------------------------------------------------------------------

    async def send(self, room: str, content: Mapping[str, Any], kind: str = "m.room.message") -> str:
        """Send an event; returns its id."""
        path = f"rooms/{quote(room)}/send/{kind}/{secrets.token_hex(8)}"
        return str((await self.ask("PUT", path, content))["event_id"])

    async def say(self, room: str, text: str, **content: Any) -> str:
        return await self.send(room, {"msgtype": "m.text", "body": text, **content})

    async def say_in_thread(self, room: str, root: str, text: str) -> str:
        relation = {
            "rel_type": "m.thread",
            "event_id": root,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": root},
        }
        return await self.say(room, text, **{"m.relates_to": relation})

    async def reply(self, room: str, to: str, text: str, **content: Any) -> str:
        return await self.say(room, text, **{"m.relates_to": {"m.in_reply_to": {"event_id": to}}}, **content)

    async def edit(self, room: str, message: str, text: str) -> str:
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": message}
        return await self.say(room, f"* {text}", **{"m.new_content": new, "m.relates_to": relation})

    async def react(self, room: str, message: str, emoji: str) -> str:
        relation = {"rel_type": "m.annotation", "event_id": message, "key": emoji}
        return await self.send(room, {"m.relates_to": relation}, "m.reaction")

    async def redact(self, room: str, event: str) -> None:
        await self.ask("PUT", f"rooms/{quote(room)}/redact/{quote(event)}/{secrets.token_hex(8)}", {})

    async def upload(self, data: bytes, media_type: str, name: str) -> str:
        """Keep a file on the homeserver; returns its ``mxc://`` address."""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media_type}
            address = f"{self.url}/_matrix/media/v3/upload"
            answer = await client.post(address, content=data, params={"filename": name}, headers=headers)
        return str(answer.json()["content_uri"])

    async def send_file(
        self, room: str, data: bytes, media_type: str, name: str, msgtype: str = "m.file", **content: Any
    ) -> str:
        address = await self.upload(data, media_type, name)
        info = {"mimetype": media_type, "size": len(data)}
        return await self.send(room, {"msgtype": msgtype, "body": name, "url": address, "info": info, **content})

    async def download(self, address: str) -> bytes:
        """What lies at an ``mxc://`` address."""
        path = f"/_matrix/client/v1/media/download/{address.removeprefix('mxc://')}"
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.get(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        assert answer.status_code == 200, answer.text
        return answer.content

    # -- what is there -------------------------------------------------------------------------------------------------

    async def event(self, room: str, event: str) -> dict[str, Any]:
        return dict(await self.ask("GET", f"rooms/{quote(room)}/event/{quote(event)}"))

    async def timeline(self, room: str) -> list[dict[str, Any]]:
        """The events of a room, the oldest first."""
        events: list[dict[str, Any]] = []
        page = {"end": ""}
        while "end" in page:
            begin = {"from": page["end"]} if page["end"] else {}
            page = await self.ask("GET", f"rooms/{quote(room)}/messages", dir="f", limit="1000", **begin)
            events += page["chunk"]
        return events

    async def messages(self, room: str, sender: "Person | None" = None) -> list[dict[str, Any]]:
        """The messages of a room in their newest form: what an edit has put in their place, with the first one's id."""
        shown: dict[str, dict[str, Any]] = {}
        for event in await self.timeline(room):
            if event["type"] != "m.room.message" or (sender is not None and event["sender"] != sender.id):
                continue
            relation = event["content"].get("m.relates_to", {})
            if relation.get("rel_type") != "m.replace":
                shown[event["event_id"]] = event
            elif relation["event_id"] in shown:
                there = shown[relation["event_id"]]
                kept = {"m.relates_to": of} if (of := there["content"].get("m.relates_to")) else {}
                shown[relation["event_id"]] = {**there, "content": {**event["content"]["m.new_content"], **kept}}
        return list(shown.values())

    async def texts(self, room: str, sender: "Person | None" = None) -> list[str]:
        return [each["content"].get("body", "") for each in await self.messages(room, sender)]

    async def sees(self, room: str, found: Callable[[str], object], sender: "Person | None" = None) -> dict[str, Any]:
        """Wait for a message whose text is as wanted."""

        async def look() -> dict[str, Any]:
            there = await self.messages(room, sender)
            return next((each for each in there if found(str(each["content"].get("body", "")))), {})

        return await until(look, every_s=0.1)

    async def typing(self, room: str) -> list[str]:
        """Who is writing in a room now."""
        only = {"room": {"rooms": [room], "timeline": {"limit": 0}}, "presence": {"types": []}}
        answer = await self.ask("GET", "sync", filter=json.dumps(only), timeout="0")
        part = answer.get("rooms", {}).get("join", {}).get(room, {})
        found = [
            each["content"]["user_ids"]
            for each in part.get("ephemeral", {}).get("events", ())
            if each["type"] == "m.typing"
        ]
        return list(found[-1]) if found else []
