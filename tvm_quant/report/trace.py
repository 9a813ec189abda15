"""Watching the passes: write the module after each, and keep the one before integers."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import tvm
from tvm import IRModule

from tvm_quant import transform
from tvm_quant.errors import ArtifactError


@tvm.instrument.pass_instrument
class PassTrace:
    """A pass instrument that follows the passes of `tvm_quant.transform`.

    Use it as `tvm.transform.PassContext(instruments=[PassTrace(folder)])`.

    Args:
        folder: gets one file per pass, `01_Prepare.py` and so on, as TVMScript; None for no files.
        passes: names of the passes to follow; by default those of `tvm_quant.transform`.

    Attributes:
        calibrated: the module that went into `Realize`, with calibrated quantizers.
    """

    def __init__(
        self, folder: str | Path | None = None, passes: Collection[str] = transform.__all__
    ):
        self.folder = Path(folder) if folder is not None else None
        self.passes = frozenset(passes)
        self.count = 0
        self.calibrated: IRModule | None = None
        if self.folder is not None:
            _make(self.folder)

    def run_before_pass(self, mod: IRModule, info: tvm.transform.PassInfo) -> None:
        """Keep the calibrated module."""
        if info.name == "Realize":
            self.calibrated = mod

    def run_after_pass(self, mod: IRModule, info: tvm.transform.PassInfo) -> None:
        """Write the module that the pass returned."""
        if self.folder is None or info.name not in self.passes:
            return
        self.count += 1
        path = self.folder / f"{self.count:02d}_{info.name}.py"
        path.write_text(mod.script(show_meta=False) + "\n", encoding="utf-8")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot make the folder {folder}: {error.strerror}") from error
