"""The codes in a `newshape` of Relay's `reshape`.

    0 this dimension   -1 what is left   -2 all remaining   -3 two as one   -4 one as the next two

Source: the documentation of `relay.reshape`, TVM 0.19.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm_quant.errors import FrontendError


def decode(
    shape: Sequence[Any], newshape: Sequence[int], allowzero: bool = False
) -> tuple[Any, ...]:
    """The shape that the codes mean, with at most one -1.

    Raises:
        FrontendError: codes that ask for more dimensions than there are.

    >>> decode((2, 3, 4), (-3, 0)), decode((2, 3, 4), (-4, 1, 2, -2))
    ((6, 4), (1, 2, 3, 4))
    """
    reader = _Reader(list(shape), [int(code) for code in newshape], allowzero)
    try:
        while reader.codes:
            reader.step()
    except IndexError:
        raise FrontendError(
            f"reshape: newshape {tuple(newshape)} does not fit the shape {tuple(shape)}."
        ) from None
    return tuple(reader.result)


class _Reader:
    def __init__(self, dims: list[Any], codes: list[int], allowzero: bool):
        self.dims, self.codes, self.allowzero = dims, codes, allowzero
        self.result: list[Any] = []

    def step(self) -> None:
        """Take one code."""
        code = self.codes.pop(0)
        read = {0: self._copy, -1: self._infer, -2: self._rest, -3: self._merge, -4: self._split}
        if code > 0 or (code == 0 and self.allowzero):
            self.result.append(code)
            del self.dims[:1]
            return
        read[code]()

    def _copy(self) -> None:
        self.result.append(self.dims.pop(0))

    def _infer(self) -> None:
        self.result.append(-1)
        del self.dims[:1]

    def _rest(self) -> None:
        self.result += self.dims
        self.dims = []

    def _merge(self) -> None:
        self.result.append(self.dims.pop(0) * self.dims.pop(0))

    def _split(self) -> None:
        whole = self.dims.pop(0)
        first, second = self.codes.pop(0), self.codes.pop(0)
        known = math.prod(part for part in (first, second) if part != -1)
        self.result += [whole // known if part == -1 else part for part in (first, second)]
