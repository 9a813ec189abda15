"""One rule per role of operator.

A rule gets the emitter, the float call and the values of its tensor operands. It emits integer
arithmetic and returns the value of the result, or None: then the call runs in float.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from tvm_quant.op import Role
from tvm_quant.transform.integer.contraction import realize_contraction
from tvm_quant.transform.integer.elementwise import (
    realize_clamp,
    realize_pointwise,
    realize_product,
    realize_sum,
)
from tvm_quant.transform.integer.emitter import Emitter
from tvm_quant.transform.integer.mean import realize_mean
from tvm_quant.transform.integer.move import realize_join, realize_move
from tvm_quant.transform.integer.value import Value

Rule = Callable[[Emitter, relax.Call, list[Value]], Value | None]

RULES: dict[Role, Rule] = {
    Role.CONTRACTION: realize_contraction,
    Role.SUM: realize_sum,
    Role.PRODUCT: realize_product,
    Role.MEAN: realize_mean,
    Role.JOIN: realize_join,
    Role.MOVE: realize_move,
    Role.CLAMP: realize_clamp,
    Role.POINTWISE: realize_pointwise,
}
