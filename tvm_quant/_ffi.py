"""Errors that cross TVM's foreign function interface keep their Python class.

A pass runs inside C++. An exception that leaves it is stored by the name of its class and raised
anew on the other side, as RuntimeError if nobody registered that name.
"""

from __future__ import annotations

import tvm_ffi

from tvm_quant import errors


def register_errors() -> None:
    """Make every error of `tvm_quant.errors`, and Ctrl-C, arrive as what was raised."""
    tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, errors.TvmQuantError):
            tvm_ffi.register_error(f"tvm_quant.{cls.__name__}", cls)
