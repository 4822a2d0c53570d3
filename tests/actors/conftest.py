"""A server without its listeners, for the tests of admin commands, operations and the command line."""

from tests.support.admin import app, commands, home

__all__ = ["app", "commands", "home"]
