"""Which vocabulary an ONNX node speaks.

Operators are known by domain and name: several tools have a `Conv` or a `Quant`, TVM's importer
looks at the name alone, and files use domains that they do not import.
"""

from __future__ import annotations

from enum import Enum

import onnx.defs
from onnx import NodeProto


class Family(str, Enum):
    """Domains that mean one vocabulary; the value is the name that messages use."""

    STANDARD = "ai.onnx"
    MICROSOFT = "com.microsoft"  # ONNX Runtime's contributed operators
    QONNX = "qonnx.custom_op.general"  # as well as its older names, and FINN's
    CHANNELS_LAST = "qonnx.custom_op.channels_last"
    PACT = "PACTOps"  # Deeploy
    INTERNAL = "tvm_quant"  # nodes that `read_model` adds
    OTHER = "an unknown domain"


_FAMILIES = {
    "": Family.STANDARD,
    "ai.onnx": Family.STANDARD,
    "com.microsoft": Family.MICROSOFT,
    "qonnx.custom_op.general": Family.QONNX,
    "onnx.brevitas": Family.QONNX,
    "finn.custom_op.general": Family.QONNX,
    "qonnx.custom_op.channels_last": Family.CHANNELS_LAST,
    "PACTOps": Family.PACT,
    "tvm_quant": Family.INTERNAL,
}

# Operators that files also write without a domain, though the standard has none of that name.
_HOMELESS = {"RequantShift": Family.PACT}


def family_of(node: NodeProto) -> Family:
    """The vocabulary of a node."""
    family = _FAMILIES.get(node.domain, Family.OTHER)
    if family is Family.STANDARD and not onnx.defs.has(node.op_type):
        return _HOMELESS.get(node.op_type, family)
    return family
