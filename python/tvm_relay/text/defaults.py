"""What a Relay text means by leaving an attribute out.

That is the default of TVM's class of attributes, which for a few operators is another one than the
default of the function `relay.op...` that `tvm_relay.op` holds.

Source: the fields of the attribute classes of TVM 0.16, compared with the rows of `tvm_relay.op`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_relay.op import OPS, REQUIRED

#: The class has no default, or an empty dtype that says nothing: TVM writes these always.
_WRITTEN = REQUIRED

_DIFFERENT: dict[str, Mapping[str, Any]] = {
    "argsort": {"dtype": _WRITTEN},
    "concatenate": {"axis": 0},
    "full": {"shape": _WRITTEN, "dtype": _WRITTEN},
    "image.resize1d": {"rounding_method": "round"},
    "image.resize2d": {"rounding_method": "round"},
    "nn.avg_pool1d": {"pool_size": _WRITTEN},
    "nn.avg_pool2d": {"pool_size": _WRITTEN},
    "nn.avg_pool3d": {"pool_size": _WRITTEN},
    "nn.batch_matmul": {"transpose_b": False},
    "nn.dense": {"units": _WRITTEN},
    "nn.depth_to_space": {"block_size": 1},
    "nn.l2_normalize": {"axis": _WRITTEN},
    "nn.leaky_relu": {"alpha": 0.25},
    "nn.lrn": {"alpha": 0.0001},
    "nn.matmul": {"units": _WRITTEN},
    "nn.max_pool1d": {"pool_size": _WRITTEN},
    "nn.max_pool2d": {"pool_size": _WRITTEN},
    "nn.max_pool3d": {"pool_size": _WRITTEN},
    "nn.pad": {"pad_width": _WRITTEN},
    "nn.space_to_depth": {"block_size": 1},
    "nn.upsampling": {"scale_h": _WRITTEN, "scale_w": _WRITTEN},
    "one_hot": {"depth": 1, "axis": -1},
    "qnn.concatenate": {"axis": 0},
    "qnn.conv2d": {"out_dtype": _WRITTEN},
    "qnn.dense": {"units": _WRITTEN, "out_dtype": _WRITTEN},
    "qnn.dequantize": {"out_dtype": _WRITTEN},
    "qnn.quantize": {"out_dtype": _WRITTEN},
    "qnn.requantize": {"out_dtype": _WRITTEN},
    "shape_of": {"dtype": _WRITTEN},
    "slice_like": {"axes": _WRITTEN},
    "stack": {"axis": 0},
    "strided_slice": {"axes": _WRITTEN},
    "topk": {"k": _WRITTEN, "dtype": _WRITTEN},
    "transpose": {"axes": _WRITTEN},
}

#: Attributes that say again what operands say: TVM writes both.
REPEATED: Mapping[str, frozenset[str]] = {"arange": frozenset({"start", "stop", "step"})}


def left_out(name: str) -> dict[str, Any]:
    """What each attribute of an operator is where the text does not say it.

    Attributes that are always written are not among them.

    >>> left_out("concatenate"), left_out("transpose")
    ({'axis': 0}, {})
    """
    defaults = {**OPS[name].attributes, **_DIFFERENT.get(name, {})} if name in OPS else {}
    return {attribute: value for attribute, value in defaults.items() if value is not REQUIRED}
