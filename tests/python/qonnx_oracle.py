"""What QONNX, FINN and Deeploy mean by their operators, without any code of tvm_quant.

ONNX's reference evaluator computes a model with these classes for the operators that it lacks. It
wants every domain imported, and every operator under one name: `evaluator` mends both.
"""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

DOMAIN = "oracle"

_FROM_ZERO = {
    "UP": lambda fraction: fraction > 0,
    "HALF_UP": lambda fraction: fraction >= 0.5,
    "HALF_DOWN": lambda fraction: fraction > 0.5,
}
_PLAIN = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "DOWN": np.trunc,
}


def rounded(x, mode):
    """Each element by one of QONNX's modes."""
    mode = mode.upper()
    if mode in _PLAIN:
        return _PLAIN[mode](x)
    whole = np.trunc(x)
    return whole + np.sign(x) * _FROM_ZERO[mode](np.abs(x - whole))


def bounds(bits, signed, narrow):
    """Smallest and largest code."""
    if signed:
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - narrow


def quant_codes(x, scale, zero, bits, signed=1, narrow=0, mode="ROUND"):
    """Codes of Quant, as floats of the arithmetic's own type."""
    y = x / scale + zero
    if bits == 1 and signed:
        return np.where(y >= 0, 1.0, -1.0)
    return rounded(np.clip(y, *bounds(float(bits), signed, narrow)), mode)


class Quant(OpRun):
    op_domain = DOMAIN

    def _run(self, x, scale, zero, bits, signed=None, narrow=None, rounding_mode=None):
        codes = quant_codes(x, scale, zero, bits.item(), signed, narrow, rounding_mode or "ROUND")
        return (((codes - zero) * scale).astype(x.dtype),)


class BipolarQuant(OpRun):
    op_domain = DOMAIN

    def _run(self, x, scale):
        return ((np.where(x >= 0, 1, -1) * scale).astype(x.dtype),)


class Trunc1(OpRun):
    op_domain = DOMAIN

    def _run(self, x, scale, zero, before, after, rounding_mode=None, **_):
        y = np.round(x / scale + zero) / 2 ** (before - after)
        return (((rounded(y, rounding_mode or "FLOOR") - zero) * scale).astype(x.dtype),)


class Trunc2(OpRun):
    op_domain = DOMAIN

    def _run(self, x, scale, zero, _before, out, after, signed=1, narrow=0, rounding_mode=None):
        t = 2 ** np.round(np.log2(out / scale))
        y = np.clip(np.round(x / scale + zero) / t, *bounds(after.item(), signed, narrow))
        return (((rounded(y, rounding_mode or "FLOOR") - zero / t) * out).astype(x.dtype),)


class FloatQuant(OpRun):
    op_domain = DOMAIN

    def _run(self, x, scale, e, m, bias, largest, has_inf=0, has_nan=0, saturation=1, **attributes):
        x = x / scale
        exponent = np.floor(np.log2(np.abs(x) + np.finfo("float32").tiny))
        k = 2.0 ** np.maximum(exponent - m, 1 - bias - m)
        y = k * rounded(x / k, attributes.get("rounding_mode") or "ROUND")
        limit = np.minimum((2 - 2.0**-m) * 2.0 ** (2.0**e - 1 - bias), largest)
        beyond = np.inf if has_inf else np.nan
        if not saturation and (has_inf or has_nan):
            y = np.where(np.abs(y) > limit, np.sign(y) * beyond, y)
        return (((np.clip(y, -limit, limit) if saturation else y) * scale).astype(x.dtype),)


class BatchNormalization(OpRun):
    """At inference; the reference of opset 9 takes a momentum as a wish to train."""

    op_domain = DOMAIN

    def _run(self, x, scale, bias, mean, variance, epsilon=None, **_):
        shape = (1, -1, *[1] * (x.ndim - 2))
        scale, bias, mean, variance = (a.reshape(shape) for a in (scale, bias, mean, variance))
        return (((x - mean) / np.sqrt(variance + np.float32(epsilon or 1e-5)) * scale + bias),)


class MultiThreshold(OpRun):
    op_domain = DOMAIN

    def _run(self, x, thresholds, out_scale=None, out_bias=None, **_):
        rows = thresholds.reshape(1, -1, *[1] * (x.ndim - 2), thresholds.shape[1])
        count = (x[..., None] >= rows).sum(-1)
        return ((count * (out_scale or 1.0) + (out_bias or 0.0)).astype(x.dtype),)


class RequantShift(OpRun):
    op_domain = DOMAIN

    def _run(self, x, mul, add, div=None, n_levels_out=None, signed=None):
        kind = x.dtype
        x, mul, add = (np.asarray(a).astype("int64") for a in (x, mul, add))
        div, levels, signed = (int(np.ravel(a)[0]) for a in (div, n_levels_out, signed))
        low = -(levels // 2) if signed else 0
        y = (x * mul + add + div // 2) // div
        return (np.clip(y, low, low + levels - 1).astype(kind),)


def _by_standard(operator):
    """A channels-last operator by the standard one between transposes."""

    def run(self, x, w=None, b=None, *more, **attributes):
        rank = x.ndim
        first, back = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        operands = [np.transpose(x, first)]
        if operator == "Conv":
            last = w.shape[1:-1] == tuple(attributes["kernel_shape"])
            operands.append(np.transpose(w, first) if last else w)
            operands += [] if b is None else [b]
        names = [f"i{i}" for i in range(len(operands))]
        node = helper.make_node(operator, names, ["y"], **attributes)
        result = ReferenceEvaluator(node, opsets={"": 17}).run(
            None, dict(zip(names, operands, strict=True))
        )[0]
        return (np.transpose(result, back),)

    return run


class ConvLast(OpRun):
    op_domain = DOMAIN

    def _run(
        self,
        x,
        w,
        b=None,
        auto_pad=None,
        dilations=None,
        group=None,
        kernel_shape=None,
        pads=None,
        strides=None,
    ):
        shared = {"kernel_shape": kernel_shape, "pads": pads, "strides": strides}
        return _by_standard("Conv")(self, x, w, b, dilations=dilations, group=group, **shared)


class MaxPoolLast(OpRun):
    op_domain = DOMAIN

    def _run(self, x, ceil_mode=None, kernel_shape=None, pads=None, strides=None, **_):
        shared = {"kernel_shape": kernel_shape, "pads": pads, "strides": strides}
        return _by_standard("MaxPool")(self, x, **shared)


OPERATORS = (
    *(Quant, BipolarQuant, Trunc1, Trunc2, FloatQuant),
    *(BatchNormalization, MultiThreshold, RequantShift, ConvLast, MaxPoolLast),
)


def mended(model: ModelProto) -> ModelProto:
    """The model with all quantizers in the oracle's domain."""
    result = ModelProto()
    result.CopyFrom(model)
    versions = {o.domain: o.version for o in model.opset_import}
    for node in result.graph.node:
        known = {c.__name__ for c in OPERATORS} | {"IntQuant", "Trunc"}
        if node.domain == "qonnx.custom_op.channels_last":
            node.op_type += "Last"
        elif node.op_type not in known:
            continue
        elif node.op_type == "IntQuant":
            node.op_type = "Quant"
        elif node.op_type == "Trunc":
            node.op_type = f"Trunc{min(versions.get(node.domain, 1), 2)}"
        node.domain = DOMAIN
        _complete(node)
    del result.opset_import[:]
    result.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    standard = [v for d, v in versions.items() if d in ("", "ai.onnx")]
    result.opset_import.append(helper.make_opsetid("", max(standard, default=17)))
    return result


def _complete(node) -> None:
    """Attributes that have a default, written out; tensors as numbers."""
    given = {a.name: a for a in node.attribute}
    if node.op_type == "Quant":
        for name, value in (("signed", 1), ("narrow", 0)):
            if name not in given:
                node.attribute.append(helper.make_attribute(name, value))
    for attribute in node.attribute:
        if attribute.type == 4 and node.op_type == "RequantShift":
            values = numpy_helper.to_array(attribute.t).ravel().tolist()
            attribute.CopyFrom(helper.make_attribute(attribute.name, [float(v) for v in values]))


def oracle_results(model: ModelProto, feeds) -> list[np.ndarray]:
    """The outputs of a model."""
    return ReferenceEvaluator(mended(model), new_ops=list(OPERATORS)).run(None, dict(feeds))


def in_float64(model: ModelProto) -> ModelProto:
    """The model with all its parameters in float64: where real values lie beside boundaries."""
    result = ModelProto()
    result.CopyFrom(model)
    tensors = list(result.graph.initializer)
    tensors += [n.attribute[0].t for n in result.graph.node if n.op_type == "Constant"]
    for tensor in tensors:
        if tensor.data_type == TensorProto.FLOAT:
            wide = numpy_helper.to_array(tensor).astype("float64")
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    return result


def with_outputs(model: ModelProto, names) -> ModelProto:
    """The model with other outputs."""
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.output[:]
    for name in names:
        result.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return result


def quantizer_outputs(model: ModelProto) -> list[str]:
    """Names of what quantizers of computed tensors give."""
    constant = {tensor.name for tensor in model.graph.initializer}
    kinds = ("Quant", "IntQuant", "BipolarQuant", "MultiThreshold", "RequantShift")
    names = []
    for node in model.graph.node:
        if node.op_type in kinds and node.input[0] not in constant:
            names.append(node.output[0])
    return names
