"""A network of two layers with calibrated quantizers, made by hand, for tests of reports."""

import numpy as np
from tvm import IRModule, relax

from tvm_quant.ir import with_node_names
from tvm_quant.ir.reasons import REASONS
from tvm_quant.op import Kind, QuantSpec, simulated_quantize

ACTIVATION = QuantSpec(signed=False, symmetric=False)
WEIGHT = QuantSpec(narrow=True, axis=0)


def calibrated_network(batch: int = 2, *, quantized: bool = True) -> IRModule:
    """conv + relu + softmax: the conv is quantized, softmax is not. Input "x", (batch, 3, 4, 4)."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(5, 3, 1, 1)).astype(np.float32)
    scale = np.abs(weight).max(axis=(1, 2, 3), keepdims=True) / 127
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, 3, 4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            data, kernel = x, relax.const(weight)
            if quantized:
                data = builder.emit(
                    simulated_quantize(x, 0.02, 128, spec=ACTIVATION, kind=Kind.INPUT), "x_q"
                )
                kernel = builder.emit(
                    simulated_quantize(kernel, scale, 0, spec=WEIGHT, kind=Kind.WEIGHT), "conv_w_q"
                )
            conv = builder.emit(relax.op.nn.conv2d(data, kernel), "conv")
            relu = builder.emit(relax.op.nn.relu(conv), "relu")
            mean = builder.emit(relax.op.mean(relu, [2, 3]), "mean")
            out = builder.emit_output(builder.normalize(relax.op.nn.softmax(mean)), "softmax")
        builder.emit_func_output(out)
    mod = builder.get()
    func = with_node_names(mod["main"], {"conv": "stem.conv", "softmax": "head/softmax"})
    mod["main"] = func.with_attr(REASONS, {"softmax": "no integer form"})
    return mod


def samples(count: int = 4, seed: int = 0) -> np.ndarray:
    """float32, (count, 3, 4, 4), about what the quantizer of `calibrated_network` holds."""
    return np.random.default_rng(seed).normal(size=(count, 3, 4, 4)).astype(np.float32)
