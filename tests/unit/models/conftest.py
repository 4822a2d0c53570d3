from tests.support.models import embedding_model_dir, local_llm_dir
from tests.support.source_engine import source_engine

__all__ = ["embedding_model_dir", "local_llm_dir", "source_engine"]
