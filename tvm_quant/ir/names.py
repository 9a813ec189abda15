"""Names as the user knows them.

Relax allows only identifier characters in variable names, so a front end records the original name
of each variable (ONNX node, FX node, TFLite tensor) in a function attribute, which passes carry
along.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tvm import relax

#: Attribute of `main`: why calls stay in float, by the names of their variables.

NODE_NAMES = "tvm_quant.node_names"


def node_name(func: relax.Function, var: relax.Var | str) -> str:
    """The user's name of the node that computes `var`, or the variable's own name."""
    own = var if isinstance(var, str) else str(var.name)
    names = func.attrs.get(NODE_NAMES) if func.attrs else None
    return str(names[own]) if names and own in names else own


def with_node_names(func: relax.Function, names: Mapping[str, str]) -> relax.Function:
    """`func` with the user's names of its variables, {variable name: node name}."""
    return func.with_attr(NODE_NAMES, dict(names))


def with_names_of(func: relax.Function, others: Mapping[str, str]) -> relax.Function:
    """`func` in which variables that a pass made have the user's name of another variable.

    Args:
        func: the function.
        others: {new variable: the variable whose name it takes}.
    """
    if not others:
        return func
    known = (
        {str(k): str(v) for k, v in (func.attrs.get(NODE_NAMES) or {}).items()}
        if func.attrs
        else {}
    )
    named = {new: node_name(func, old) for new, old in others.items()}
    return with_node_names(func, {**known, **named})


def identifier(name: str) -> str:
    """`name` as a Relax variable may have it: letters, digits and '_', a letter in front.

    >>> identifier("/layer1/conv.2")
    'layer1_conv_2'
    >>> identifier("139")
    'n139'
    """
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name).strip("_") or "node"
    return clean if clean[0].isalpha() else f"n{clean}"
