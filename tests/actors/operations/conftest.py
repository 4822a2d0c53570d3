"""The server without listeners that the tests of the admin socket use."""

from tests.actors.admin.conftest import app, home

__all__ = ["app", "home"]
