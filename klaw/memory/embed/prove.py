"""What an embedding model has to show before another model's vectors are dropped for it. Blocks."""

from typing import TYPE_CHECKING

import numpy as np

from klaw.errors import ModelError
from klaw.memory.embed.calibration import TOO_ALIKE

if TYPE_CHECKING:
    from klaw.memory.embed.model import Kind
    from klaw.memory.embed.remote import AnyModel

_PROOF_TEXTS = (
    "My sister Anna is allergic to peanuts.",
    "The spare key lies under the third flower pot.",
    "В четверг в половине десятого приём у зубного врача.",
    "Сосед сверху опять залил нам ванную.",
)


def prove(model: "AnyModel") -> None:
    """Embed a few different texts and look at the vectors. Closes a model that fails.

    Raises:
        ModelError: they are not unit vectors, or not different; or the model failed.
    """
    try:
        _look_at_vectors(model)
    except ModelError:
        model.close()
        raise


def _look_at_vectors(model: "AnyModel") -> None:
    kinds: tuple[Kind, ...] = ("passage", "query")
    for kind in kinds:
        found = model.embed(_PROOF_TEXTS, kind=kind)
        if not np.isfinite(found).all() or not np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-3):
            raise ModelError(f"{model.model_id}: gives no usable vectors; the other model's are kept")
        if (found @ found.T - np.eye(len(_PROOF_TEXTS))).max() >= TOO_ALIKE:
            raise ModelError(f"{model.model_id}: gives different texts the same vector; the other model's are kept")
