"""Connecting models and search services: by the server if one runs, else by the command itself."""

from klaw.operations.connect import models as models
from klaw.operations.connect.search import CONNECT

__all__ = ["CONNECT"]
