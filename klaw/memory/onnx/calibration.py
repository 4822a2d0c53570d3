"""Measures what "nothing in common" looks like to an embedding model that comes without that figure."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_UNRELATED = (
    "My grandmother's apple pie needs two cups of flour.",
    "The train to Leeds leaves from platform nine at noon.",
    "Could you fix the memory leak in the parser?",
    "We adopted a grey kitten from the shelter last week.",
    "Interest rates rose again, so the mortgage got more expensive.",
    "The orchestra rehearses Mahler on Thursday evening.",
    "Her ankle still hurts after the marathon.",
    "Volcanic ash closed the airport in Reykjavik.",
    "I forgot the password of the old router.",
    "Tomatoes grow badly in the shade behind the house.",
    "The judge postponed the hearing until spring.",
    "He paints his model ships with a very fine brush.",
    "Завтра утром мне надо отвезти машину на техосмотр.",
    "Наша дочь учится играть на скрипке второй год.",
    "Суд отклонил жалобу из-за пропущенного срока.",
    "В этом супе не хватает соли и укропа.",
    "Телескоп заметил новую комету возле Юпитера.",
    "Начальник просит прислать отчёт до пятницы.",
    "Мы поменяли окна, и в комнате стало тише.",
    "У бабушки на даче поспела чёрная смородина.",
    "Сервер перестал отвечать после обновления.",
    "Кот опять уснул на клавиатуре.",
    "Билеты в Казань оказались дешевле, чем я думал.",
    "Врач советует меньше сидеть и больше ходить.",
)

Embed: TypeAlias = Callable[[Sequence[str], bool], npt.NDArray[np.float32]]


def measure_random_cosine(embed: Embed) -> float:
    """Mean cosine over the 552 ordered pairs of different sentences, one as a query, the other as a passage.

    Args:
        embed: ``embed(texts, as_query)`` gives unit vectors (n, dim).
    """
    cosines = embed(_UNRELATED, True) @ embed(_UNRELATED, False).T
    return float(cosines[~np.eye(len(_UNRELATED), dtype=bool)].mean())
