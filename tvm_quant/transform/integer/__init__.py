"""Integer forms of float operators, one file per role; used by `Realize`."""

from tvm_quant.transform.integer.foreign import rule_for
from tvm_quant.transform.integer.rules import RULES

__all__ = ["RULES", "rule_for"]
