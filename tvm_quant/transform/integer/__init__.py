"""Integer forms of float operators, one file per role; used by `Realize`."""

from tvm_quant.transform.integer.rules import RULES

__all__ = ["RULES"]
