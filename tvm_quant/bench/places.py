"""Where benchmarks find models and data, and where they keep what is costly to make."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tvm_quant.errors import TvmQuantError


class UnavailableError(TvmQuantError):
    """A benchmark that cannot run here: a model, a data set or a package is missing.

    Cause: no folder of models and data, or an optional package is not installed.
    Cure: the message names what is missing.
    """


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders of one run.

    Attributes:
        shared: holds `models/` and `data/`; $TVM_QUANT_SHARED, else `shared` beside the repository.
        cache: decoded images and exported models; $TVM_QUANT_CACHE, else ~/.cache/tvm_quant.
    """

    shared: Path
    cache: Path

    @classmethod
    def default(cls) -> Places:
        """As the environment says."""
        beside = Path(__file__).parents[2].parent / "shared"
        home = Path.home() / ".cache" / "tvm_quant"
        return cls(
            shared=Path(os.environ.get("TVM_QUANT_SHARED", beside)),
            cache=Path(os.environ.get("TVM_QUANT_CACHE", home)),
        )

    def find(self, path: str) -> Path:
        """A file or folder below `shared`.

        Raises:
            UnavailableError: it does not exist.
        """
        found = self.shared / path
        if not found.exists():
            raise UnavailableError(
                f"there is no {found}; set TVM_QUANT_SHARED to the folder that holds models/ and "
                "data/"
            )
        return found
