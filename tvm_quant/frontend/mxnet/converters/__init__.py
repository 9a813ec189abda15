"""`CONVERTERS`: from operators of MXNet to Relax. A new operator is a function and a row.

Source: the operator reference of MXNet 1.9.1, and for names of older versions the aliases in
src/operator.
"""

from __future__ import annotations

from tvm import relax

from tvm_quant.frontend.mxnet.converters import (
    conv,
    elementwise,
    norm,
    pool,
    quantized,
    shape,
)
from tvm_quant.frontend.mxnet.converters.grids import Grid, Grids
from tvm_quant.frontend.mxnet.converters.node import Converter, Node

R = relax.op

_FUNCTIONS = {
    "abs": R.abs,
    "arccos": R.acos,
    "arcsin": R.asin,
    "arctan": R.atan,
    "ceil": R.ceil,
    "cos": R.cos,
    "cosh": R.cosh,
    "erf": R.erf,
    "exp": R.exp,
    "expm1": elementwise.expm1,
    "fix": R.trunc,
    "floor": R.floor,
    "log": R.log,
    "log1p": elementwise.log1p,
    "negative": R.negative,
    "ones_like": R.ones_like,
    "reciprocal": elementwise.reciprocal,
    "relu": R.nn.relu,
    "rint": R.round,
    "rsqrt": R.rsqrt,
    "sigmoid": R.sigmoid,
    "sign": R.sign,
    "sin": R.sin,
    "sinh": R.sinh,
    "softsign": elementwise.softsign,
    "sqrt": R.sqrt,
    "square": R.square,
    "tan": R.tan,
    "tanh": R.tanh,
    "trunc": R.trunc,
    "zeros_like": R.zeros_like,
    "_npx_relu": R.nn.relu,
    "_npx_sigmoid": R.sigmoid,
    "LogisticRegressionOutput": R.sigmoid,
}

_equal = elementwise.comparison(R.equal)
_greater = elementwise.comparison(R.greater)
_greater_equal = elementwise.comparison(R.greater_equal)
_less = elementwise.comparison(R.less)
_less_equal = elementwise.comparison(R.less_equal)
_not_equal = elementwise.comparison(R.not_equal)

_ARITHMETIC = {
    **dict.fromkeys(("elemwise_add", "broadcast_add", "broadcast_plus", "_plus", "_Plus"), R.add),
    **dict.fromkeys(
        ("elemwise_sub", "broadcast_sub", "broadcast_minus", "_minus", "_Minus"), R.subtract
    ),
    **dict.fromkeys(("elemwise_mul", "broadcast_mul", "_mul", "_Mul"), R.multiply),
    **dict.fromkeys(("elemwise_div", "broadcast_div", "_div", "_Div"), R.divide),
    **dict.fromkeys(("broadcast_power", "_power", "_Power"), R.power),
    **dict.fromkeys(("broadcast_maximum", "_maximum", "_Maximum"), R.maximum),
    **dict.fromkeys(("broadcast_minimum", "_minimum", "_Minimum"), R.minimum),
    "broadcast_equal": _equal,
    "broadcast_greater": _greater,
    "broadcast_greater_equal": _greater_equal,
    "broadcast_lesser": _less,
    "broadcast_lesser_equal": _less_equal,
    "broadcast_not_equal": _not_equal,
}

_SCALAR = {
    **dict.fromkeys(("_plus_scalar", "_PlusScalar"), R.add),
    **dict.fromkeys(("_minus_scalar", "_MinusScalar"), R.subtract),
    **dict.fromkeys(("_mul_scalar", "_MulScalar"), R.multiply),
    **dict.fromkeys(("_div_scalar", "_DivScalar"), R.divide),
    **dict.fromkeys(("_power_scalar", "_PowerScalar"), R.power),
    **dict.fromkeys(("_maximum_scalar", "_MaximumScalar"), R.maximum),
    **dict.fromkeys(("_minimum_scalar", "_MinimumScalar"), R.minimum),
    "_equal_scalar": _equal,
    "_greater_equal_scalar": _greater_equal,
    "_greater_scalar": _greater,
    "_lesser_equal_scalar": _less_equal,
    "_lesser_scalar": _less,
    "_not_equal_scalar": _not_equal,
}

_REVERSE_SCALAR = {
    **dict.fromkeys(("_rminus_scalar", "_RMinusScalar"), R.subtract),
    **dict.fromkeys(("_rdiv_scalar", "_RDivScalar"), R.divide),
    **dict.fromkeys(("_rpower_scalar", "_RPowerScalar"), R.power),
}

_REDUCTIONS = {
    "max": R.max,
    "mean": R.mean,
    "min": R.min,
    "prod": R.prod,
    "sum": R.sum,
    "sum_axis": R.sum,
}

#: What training needs and inference does not.
_IDENTITIES = (
    "BlockGrad",
    "Dropout",
    "IdentityAttachKLSparseReg",
    "LinearRegressionOutput",
    "MAERegressionOutput",
    "MakeLoss",
    "SVMOutput",
    "_copy",
    "identity",
    "make_loss",
    "stop_gradient",
)

_OWN: dict[str, Converter] = {
    "Activation": elementwise.activation,
    "BatchNorm": norm.batch_norm,
    "BatchNorm_v1": norm.batch_norm,
    "Cast": elementwise.cast,
    "Concat": shape.concat,
    "Convolution": conv.convolution,
    "Convolution_v1": conv.convolution,
    "Crop": shape.crop,
    "Deconvolution": conv.deconvolution,
    "ElementWiseSum": elementwise.sum_of_all,
    "Embedding": shape.take(data=1, indices=0),
    "Flatten": shape.flatten,
    "FullyConnected": conv.fully_connected,
    "InstanceNorm": norm.instance_norm,
    "L2Normalization": norm.l2_normalization,
    "LRN": norm.local_response,
    "LayerNorm": norm.layer_norm,
    "LeakyReLU": elementwise.leaky_relu,
    "Pad": shape.pad,
    "Pooling": pool.pooling,
    "Pooling_v1": pool.pooling,
    "Reshape": shape.reshape,
    "SliceChannel": shape.split,
    "Softmax": elementwise.softmax_output,
    "SoftmaxActivation": elementwise.softmax_activation,
    "SoftmaxOutput": elementwise.softmax_output,
    "SwapAxis": shape.swap_axes,
    "UpSampling": shape.upsampling,
    "_contrib_AdaptiveAvgPooling2D": pool.adaptive_average,
    "_contrib_BilinearResize2D": shape.bilinear_resize,
    "_contrib_SyncBatchNorm": norm.batch_norm,
    "_full": elementwise.filled(0),
    "_ones": elementwise.filled(1),
    "_zeros": elementwise.filled(0),
    "add_n": elementwise.sum_of_all,
    "argmax": elementwise.index_of(R.argmax),
    "argmin": elementwise.index_of(R.argmin),
    "batch_dot": elementwise.batch_dot,
    "broadcast_axis": shape.broadcast_axis,
    "broadcast_like": shape.broadcast_like,
    "broadcast_to": shape.broadcast_to,
    "cast": elementwise.cast,
    "clip": elementwise.clip,
    "concat": shape.concat,
    "depth_to_space": shape.depth_to_space,
    "dot": elementwise.dot,
    "expand_dims": shape.expand_dims,
    "flatten": shape.flatten,
    "flip": shape.flip,
    "hard_sigmoid": elementwise.hard_sigmoid,
    "log_softmax": elementwise.softmax(R.nn.log_softmax),
    "norm": elementwise.norm,
    "one_hot": elementwise.one_hot,
    "pad": shape.pad,
    "repeat": shape.repeat,
    "reshape": shape.reshape,
    "reverse": shape.flip,
    "smooth_l1": elementwise.smooth_l1,
    "slice": shape.slice_,
    "slice_axis": shape.slice_axis,
    "slice_like": shape.slice_like,
    "softmax": elementwise.softmax(R.nn.softmax),
    "space_to_depth": shape.space_to_depth,
    "split": shape.split,
    "squeeze": shape.squeeze,
    "stack": shape.stack,
    "swapaxes": shape.swap_axes,
    "take": shape.take(data=0, indices=1),
    "tile": shape.tile,
    "transpose": shape.transpose,
    "where": elementwise.where,
}

CONVERTERS: dict[str, Converter] = {
    **{name: elementwise.function(op) for name, op in _FUNCTIONS.items()},
    **{name: elementwise.arithmetic(op) for name, op in _ARITHMETIC.items()},
    **{name: elementwise.with_scalar(op) for name, op in _SCALAR.items()},
    **{name: elementwise.with_scalar(op, reverse=True) for name, op in _REVERSE_SCALAR.items()},
    **{name: elementwise.reduction(op) for name, op in _REDUCTIONS.items()},
    **dict.fromkeys(_IDENTITIES, elementwise.identity),
    **_OWN,
    **quantized.CONVERTERS,
}

#: Operators that tell a network that was quantized already.
QUANTIZED = frozenset(quantized.CONVERTERS)

__all__ = ["CONVERTERS", "QUANTIZED", "Converter", "Grid", "Grids", "Node"]
