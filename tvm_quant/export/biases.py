"""Biases: sums with a constant that become an operand of the layer before them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from tvm_quant.export.graph import Array
from tvm_quant.ir import constant_value, consumers, op_name, producers, tensor_shape
from tvm_quant.op import Role, is_simulated, role_of, scale_of
from tvm_quant.transform.channel_vector import scale_per_output

LARGEST = 2**31 - 1
"""The largest code of an int32 bias."""


def biased_layers(func: relax.Function) -> dict[relax.Var, relax.Var]:
    """Sums that are the bias of a convolution or product that nothing else reads: {sum: layer}."""
    values, readers = producers(func), consumers(func)
    return {
        var: value.args[0]
        for var, value in values.items()
        if op_name(value) == "relax.add"
        and value.args[0] in values
        and len(readers[value.args[0]]) == 1
        and _is_bias(values[value.args[0]], value)
    }


def _is_bias(layer: relax.Expr, total: relax.Call) -> bool:
    known = constant_value(total.args[1])
    if known is None or role_of(layer) is not Role.CONTRACTION:
        return False
    if op_name(layer) == "relax.matmul":
        ranks = [len(tensor_shape(arg) or ()) for arg in layer.args]
        return ranks == [2, 2] and known.shape == (_channels(layer),)
    return known.ndim > 1 and known.size == known.shape[1] == _channels(layer)


def _channels(layer: relax.Call) -> int | None:
    """Columns of a matrix product, channels of a convolution with channels first."""
    return (tensor_shape(layer) or (None, None))[1]


def bias_of(total: relax.Call) -> Array:
    """The bias that a sum adds, as a float32 vector."""
    known = constant_value(total.args[1])
    assert known is not None, "biased_layers() asks"
    return known.reshape(-1).astype("float32")


def bias_codes(
    layer: relax.Call, values: Mapping[relax.Var, relax.Expr], bias: Array
) -> tuple[Array, Array] | None:
    """Int32 codes of a bias and the float32 scales of the layer's accumulator.

    None where the layer is not quantized, or int32 does not hold the bias at that scale.
    """
    scale = _accumulator_scale(layer, values)
    if scale is None:
        return None
    codes = np.round(bias.astype("float64") / scale)
    lost = np.abs(codes * scale - bias) > 1e-3 * scale + 1e-6 * np.abs(bias)
    if lost.any() or np.abs(codes).max(initial=0) > LARGEST:
        return None
    return codes.astype("int32"), scale.astype("float32")


def _accumulator_scale(layer: relax.Call, values: Mapping[relax.Var, relax.Expr]) -> Array | None:
    data, weight = (values.get(arg) for arg in layer.args)
    if data is None or weight is None or not (is_simulated(data) and is_simulated(weight)):
        return None
    known, channels = constant_value(weight.args[0]), _channels(layer)
    data_scale, weight_scale = (scale_of(call)[0].astype("float64") for call in (data, weight))
    if known is None or data_scale.size != 1 or channels is None:
        return None
    product = float(data_scale) * scale_per_output(layer, weight_scale, known.shape)
    return np.broadcast_to(product.reshape(-1), (channels,))
