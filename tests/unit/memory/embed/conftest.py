from tests.support.models import embedding_model_dir

__all__ = ["embedding_model_dir"]
