"""Fixtures of the model side."""

from tests.support.models import local_llm_dir

__all__ = ["local_llm_dir"]
