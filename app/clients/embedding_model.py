"""What every source of vectors is like."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from app.errors import ProviderRejectedError

Vector = np.ndarray[tuple[int], np.dtype[np.float32]]
"""Shape (dimensions,), L2-normalised, finite, not zero; read-only, since a cache shares it."""

Embedded = Vector | ProviderRejectedError
"""A vector, or why this text can never have one."""


class EmbeddingModel(Protocol):
    """A source of vectors, remote or in this process.

    Attributes:
        name: stored with every vector; vectors of different names are never compared.
        dimensions: width of every vector.
        batch_size: how many texts one call takes; may shrink when a provider says so.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def batch_size(self) -> int: ...

    async def load(self) -> None:
        """Do now what would make the first call slow.

        Raises:
            SettingsError: the model cannot be used on this machine.
        """
        ...

    async def embed_documents(self, texts: Sequence[str]) -> list[Embedded]:
        """Embed up to `batch_size` stored texts, in order.

        Raises:
            ProviderError: nothing could be embedded; the texts are not to blame, so try again later.
        """
        ...

    async def embed_query(self, text: str) -> Vector:
        """Embed what is searched for.

        Raises:
            ProviderError: at once, without waiting, while the provider is known to refuse us.
        """
        ...

    async def embed_queries(self, texts: Sequence[str]) -> list[Embedded]:
        """Embed any number of texts as queries, in order; for many at once, which nobody waits for.

        Raises:
            ProviderError: nothing could be embedded.
        """
        ...

    async def aclose(self) -> None: ...
