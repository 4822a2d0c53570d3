"""The tools that reach out of Klaw, as far as the configuration switches them on."""

from pathlib import Path

from klaw.actor.threads import Threads
from klaw.config.schema import ToolsConfig
from klaw.toolbox.spec import ToolSpec


def outside_tools(config: ToolsConfig, workspace: Path, files: Threads) -> list[ToolSpec]:
    """``web_fetch`` and ``host_exec``; their code is loaded only if they are used.

    Args:
        config: ``tools``.
        workspace: the workspaces' folder.
        files: threads for work on it.
    """
    specs: list[ToolSpec] = []
    if config.web.enabled:
        from klaw.toolbox.web.fetch import WebFetcher
        from klaw.toolbox.web.tool import web_fetch

        specs.append(web_fetch(WebFetcher(config.web), config.web.timeout_s))
    if config.exec.enabled:
        from klaw.toolbox.exec.sandbox import Sandbox
        from klaw.toolbox.exec.tool import HostExec, host_exec

        runner = HostExec(config=config.exec, workspace=workspace, files=files, sandbox=Sandbox(config.exec))
        specs.append(host_exec(runner))
    return specs
