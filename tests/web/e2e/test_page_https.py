"""The page over HTTPS of the server itself, with a self-signed certificate."""

from klaw.gateway.tokens import add_token, tokens_file
from tests.support.browser import in_browser, needs_chromium
from tests.support.certificates import write_certificate
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import run_klaw, served, write_home
from tests.web.e2e.test_page import begin_chat, say
from tests.web.e2e.test_page_system import log_in


@needs_chromium
async def test_the_page_and_the_terminal_over_https(tmp_path):
    """33.6: the terminal of this machine takes the server's own certificate, whatever its name, and no other."""
    files = {"certFile": str(tmp_path / "klaw.crt"), "keyFile": str(tmp_path / "klaw.key")}
    write_certificate(tmp_path / "klaw.crt", tmp_path / "klaw.key")
    _, token = add_token(tokens_file(tmp_path / "config"), "root", "2026-01-01T00:00:00Z", operator=True)

    def look(page, wrong):
        log_in(page, token)
        (cookie,) = page.context.cookies()
        assert cookie["secure"]
        begin_chat(page, "garden")
        say(page, "What grows here?")
        page.wait_for_selector("article.assistant:has-text('answer')")
        page.reload()
        page.wait_for_selector("article.assistant:has-text('answer')")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url, gateway={"tls": files})) as server:
        llm.respond = lambda _: text_reply("answer")
        port = server.config["gateway"]["port"]
        await in_browser(look, f"https://127.0.0.1:{port}/", ignore_https_errors=True)
        chat = ("chat", "--home", str(tmp_path), "--token", token)
        assert (await run_klaw(*chat, "And there?"))[:2] == (0, "answer\n")
        code, _, said = await run_klaw(*chat, "--url", f"wss://127.0.0.1:{port}/ws", "Whose is it?")
        assert (code, "no server at wss://" in said) == (1, True)
        environ = {"SSL_CERT_FILE": files["certFile"]}
        trusting = await run_klaw(*chat, "--url", f"wss://localhost:{port}/ws", "And now?", environ=environ)
        assert trusting[:2] == (0, "answer\n")
        write_certificate(tmp_path / "klaw.crt", tmp_path / "another.key")
        assert (await run_klaw(*chat, "Renewed?"))[0] == 1  # until its key comes, too
