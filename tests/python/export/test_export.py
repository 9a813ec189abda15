"""Exported networks compute in ONNX Runtime what the simulation computes here."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tvm import relax

from plain_tvm import build, run
from tvm_quant.errors import ArtifactError, ConfigError, IRContractError, UnsupportedError
from tvm_quant.export import export_qdq
from tvm_quant.export.operators import OPERATORS
from tvm_quant.op import Kind, QuantSpec, Rounding, simulated_quantize

ort = pytest.importorskip("onnxruntime", reason="compares with ONNX Runtime")

OP = relax.op
U8 = QuantSpec(signed=False, symmetric=False)
S8 = QuantSpec(narrow=True)
SHAPE = (2, 4, 8, 6)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def quantized(bb, x, scale=0.05, zero_point=100, spec=U8):
    return bb.emit(simulated_quantize(x, scale, zero_point, spec=spec, kind=Kind.ACTIVATION), "q")


def weight(bb, array, axis=None, spec=S8):
    """Quantized per channel of `axis`."""
    if axis is not None:
        rest = tuple(d for d in range(array.ndim) if d != axis)
        scale = np.abs(array).max(axis=rest, keepdims=True) / spec.qmax
        spec = QuantSpec(bits=spec.bits, narrow=True, axis=axis)
    else:
        scale = np.abs(array).max() / spec.qmax
    call = simulated_quantize(relax.const(array), scale, None, spec=spec, kind=Kind.WEIGHT)
    return bb.emit(call, "w")


def in_onnxruntime(model, *inputs):
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), settings)
    names = [info.name for info in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def check(body, *inputs, atol=2e-6, **options):
    shapes = {f"x{index}": array.shape for index, array in enumerate(inputs)}
    mod = build(body, **shapes)
    model = export_qdq(mod, **options)
    onnx.checker.check_model(model, full_check=True)
    for ours, theirs in zip(run(mod, *inputs), in_onnxruntime(model, *inputs), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=atol, rtol=1e-5)
    return model


POSITIVE = {"log", "sqrt", "rsqrt", "power"}

CALLS = {
    "nn.conv1d": lambda bb, q: OP.nn.conv1d(
        OP.reshape(q, (2, 4, 48)), weight(bb, random(6, 4, 3), 0), padding=1, strides=2
    ),
    "nn.conv2d": lambda bb, q: OP.nn.conv2d(
        q, weight(bb, random(6, 2, 3, 2), 0), padding=(1, 0, 2, 1), strides=(2, 1), groups=2
    ),
    "nn.conv3d": lambda bb, q: OP.nn.conv3d(
        OP.expand_dims(q, 1), weight(bb, random(3, 1, 2, 2, 2), 0)
    ),
    "nn.conv1d_transpose": lambda bb, q: OP.nn.conv1d_transpose(
        OP.reshape(q, (2, 4, 48)), weight(bb, random(4, 3, 3)), strides=2, output_padding=1
    ),
    "nn.conv2d_transpose": lambda bb, q: OP.nn.conv2d_transpose(
        q, weight(bb, random(4, 3, 3, 3)), strides=(2, 2), padding=(1, 1), output_padding=(1, 1)
    ),
    "matmul": lambda bb, q: OP.matmul(q, weight(bb, random(6, 5), 1)),
    "add": lambda _bb, q: OP.add(q, relax.const(random(1, 4, 1, 1))),
    "subtract": lambda _bb, q: OP.subtract(relax.const(np.float32(1)), q),
    "multiply": lambda _bb, q: OP.multiply(q, q),
    "divide": lambda _bb, q: OP.divide(q, relax.const(np.float32(3))),
    "maximum": lambda _bb, q: OP.maximum(q, relax.const(np.float32(0.2))),
    "minimum": lambda _bb, q: OP.minimum(q, relax.const(np.float32(0.2))),
    "power": lambda _bb, q: OP.power(q, relax.const(np.float32(1.5))),
    "nn.max_pool1d": lambda _bb, q: OP.nn.max_pool1d(OP.reshape(q, (2, 4, 48)), 3, 2, 1),
    "nn.max_pool2d": lambda _bb, q: OP.nn.max_pool2d(q, (3, 2), (2, 2), (1, 0), ceil_mode=True),
    "nn.max_pool3d": lambda _bb, q: OP.nn.max_pool3d(OP.expand_dims(q, 1), (2, 2, 2), (2, 2, 2)),
    "nn.avg_pool1d": lambda _bb, q: OP.nn.avg_pool1d(OP.reshape(q, (2, 4, 48)), 3, 2, 1),
    "nn.avg_pool2d": lambda _bb, q: OP.nn.avg_pool2d(
        q, (3, 3), (2, 1), (1, 1), count_include_pad=True
    ),
    "nn.avg_pool3d": lambda _bb, q: OP.nn.avg_pool3d(OP.expand_dims(q, 1), (2, 2, 2), (2, 2, 2)),
    "nn.adaptive_avg_pool2d": lambda _bb, q: OP.nn.adaptive_avg_pool2d(q, (1, 1)),
    "mean": lambda _bb, q: OP.mean(q, [2, 3], keepdims=True),
    "max": lambda _bb, q: OP.max(q, 1),
    "min": lambda _bb, q: OP.min(q, [0, -1]),
    "sum": lambda _bb, q: OP.sum(q),
    "concat": lambda _bb, q: OP.concat([q, q], axis=2),
    "reshape": lambda _bb, q: OP.reshape(q, (8, 48)),
    "flatten": lambda _bb, q: OP.flatten(q),
    "permute_dims": lambda _bb, q: OP.permute_dims(q, [0, 2, 3, 1]),
    "squeeze": lambda _bb, q: OP.squeeze(OP.expand_dims(q, 1), 1),
    "expand_dims": lambda _bb, q: OP.expand_dims(q, [0, 3]),
    "strided_slice": lambda _bb, q: OP.strided_slice(q, [1, 2], [1, 0], [3, 7], [1, 2]),
    "broadcast_to": lambda _bb, q: OP.broadcast_to(OP.expand_dims(q, 0), (3, *SHAPE)),
    "tile": lambda _bb, q: OP.tile(q, (1, 2, 1, 1)),
    "take": lambda _bb, q: OP.take(q, relax.const(np.array([2, 0])), axis=1),
    "image.resize2d": lambda _bb, q: OP.image.resize2d(
        q,
        (16, 12),
        method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    ),
    "nn.pad": lambda _bb, q: OP.nn.pad(q, [0, 0, 0, 0, 1, 2, 3, 0], "constant", 0.5),
    "clip": lambda _bb, q: OP.clip(q, -0.5, 1.25),
    "nn.leakyrelu": lambda _bb, q: OP.nn.leakyrelu(q, 0.1),
    "nn.softplus": lambda _bb, q: OP.nn.softplus(q),
    "nn.softmax": lambda _bb, q: OP.nn.softmax(q, 1),
    "nn.log_softmax": lambda _bb, q: OP.nn.log_softmax(q, -1),
    "nn.layer_norm": lambda _bb, q: OP.nn.layer_norm(
        q, relax.const(random(6)), relax.const(random(6, seed=1)), axes=[-1]
    ),
}
UNARY = sorted(
    {name.removeprefix("relax.") for name in OPERATORS} - set(CALLS) - {"nn.gelu", "nn.gelu_tanh"}
)


def unary(name):
    function = OP
    for part in name.split("."):
        function = getattr(function, part)
    return lambda _bb, q: function(
        OP.add(OP.abs(q), relax.const(np.float32(0.1))) if name in POSITIVE else q
    )


@pytest.mark.parametrize("name", [*CALLS, *UNARY, "nn.gelu", "nn.gelu_tanh"])
def test_every_operator_computes_the_same(name):
    call = CALLS.get(name) or unary(name)

    def body(bb, x):
        q = quantized(bb, x)
        if name == "power":
            q = bb.emit(OP.abs(q))
        return bb.emit(call(bb, q))

    check(body, 2 * random(*SHAPE), atol=1e-5)


# Layers ------------------------------------------------------------------------------------------


def layer(bb, x, bias):
    q = quantized(bb, x, 0.02, 128)
    y = bb.emit(OP.nn.conv2d(q, weight(bb, random(3, 4, 3, 3), 0)))
    return bb.emit(OP.nn.relu(bb.emit(OP.add(y, relax.const(bias.reshape(1, -1, 1, 1))))))


def test_a_bias_becomes_int32_at_the_scale_of_the_accumulator():
    scale = np.abs(random(3, 4, 3, 3)).max(axis=(1, 2, 3)) / 127 * np.float64(np.float32(0.02))
    bias = (np.array([1000, -70000, 3]) * scale).astype("float32")
    model = check(lambda bb, x: layer(bb, x, bias), random(*SHAPE))
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    codes = [array for array in known.values() if array.dtype == np.int32]
    assert [array.tolist() for array in codes] == [[1000, -70000, 3]]
    (conv,) = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(conv.input) == 3
    assert "Add" not in {node.op_type for node in model.graph.node}


def test_a_bias_off_the_grid_stays_in_float():
    model = check(lambda bb, x: layer(bb, x, random(3, seed=3)), random(*SHAPE))
    types = {numpy_helper.to_array(tensor).dtype for tensor in model.graph.initializer}
    assert np.dtype("int32") not in types


def test_a_matrix_product_with_its_bias_is_one_node():
    def body(bb, x):
        y = bb.emit(OP.matmul(quantized(bb, x), weight(bb, random(6, 5), 1)))
        return bb.emit(OP.add(y, relax.const(random(5))))

    model = check(body, random(3, 6), atol=1e-5)
    assert [node.op_type for node in model.graph.node].count("Gemm") == 1


def test_weights_are_integers_and_activations_have_pairs():
    model = check(lambda bb, x: layer(bb, x, random(3)), random(*SHAPE))
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shapes = {name: array.shape for name, array in known.items() if array.dtype == np.int8}
    assert (3, 4, 3, 3) in shapes.values()
    operators = [node.op_type for node in model.graph.node]
    assert operators.count("QuantizeLinear") == 1
    (scales,) = [a for name, a in known.items() if name == "w_scale"]
    assert scales.shape == (3,)


# Grids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        QuantSpec(bits=16, signed=False, symmetric=False),
        QuantSpec(bits=8),
        QuantSpec(bits=8, narrow=True),
        QuantSpec(bits=4, signed=False),
        QuantSpec(bits=3, narrow=True),
        QuantSpec(bits=8, signed=False, low=3, high=200, symmetric=False),
    ],
    ids=str,
)
def test_grids_of_any_width_as_qdq(spec):
    zero_point = 0 if spec.symmetric else 7
    check(
        lambda bb, x: bb.emit(OP.exp(quantized(bb, x, 0.125, zero_point, spec))),
        3 * random(*SHAPE),
        format="qdq",
    )


def test_few_bits_become_quant_nodes():
    def body(bb, x):
        q = quantized(bb, x, 0.25, 2, QuantSpec(bits=4, signed=False, symmetric=False))
        return bb.emit(OP.matmul(q, weight(bb, random(6, 5), 1, QuantSpec(bits=3, narrow=True))))

    model = export_qdq(build(body, x=(3, 6)))
    quants = [node for node in model.graph.node if node.op_type == "Quant"]
    attributes = [
        {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} for node in quants
    ]
    assert attributes == [
        {"signed": 0, "narrow": 0, "rounding_mode": b"ROUND"},
        {"signed": 1, "narrow": 1, "rounding_mode": b"ROUND"},
    ]
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert [float(known[node.input[3]]) for node in quants] == [4, 3]
    assert [known[node.input[1]].shape for node in quants] == [(), (1, 5)]
    assert {entry.domain for entry in model.opset_import} == {"", "qonnx.custom_op.general"}


# The file, and what cannot be written ------------------------------------------------------------


def test_the_file_is_the_model(tmp_path):
    mod = build(lambda bb, x: layer(bb, x, random(3)), x=SHAPE)
    path = tmp_path / "model.onnx"
    model = export_qdq(mod, path)
    assert onnx.load(path) == model
    with pytest.raises(ArtifactError, match="no folder"):
        export_qdq(mod, tmp_path / "missing" / "model.onnx")


def test_results_that_are_inputs_or_given_twice():
    def body(bb, x):
        q = quantized(bb, x)
        return x, q, q

    check(body, random(*SHAPE))


def test_an_open_batch_stays_open():
    from tvm import tirx

    n = tirx.Var("n", "int64")
    mod = build(lambda bb, x: bb.emit(OP.reshape(quantized(bb, x), (n, 12))), x=(n, 4, 3))
    model = export_qdq(mod)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["n", 4, 3]
    assert in_onnxruntime(model, random(5, 4, 3))[0].shape == (5, 12)


def channels_last(bb, x):
    return bb.emit(
        OP.nn.conv2d(
            quantized(bb, x),
            weight(bb, random(3, 4, 3, 3), 0),
            data_layout="NHWC",
            kernel_layout="OIHW",
        ),
        "conv",
    )


@pytest.mark.parametrize(
    ("body", "shape", "error", "message"),
    [
        (channels_last, (1, 8, 8, 4), UnsupportedError, "'conv'.*layout is NHWC"),
        (
            lambda bb, x: bb.emit(OP.nn.softplus(quantized(bb, x), beta=2.0), "soft"),
            SHAPE,
            UnsupportedError,
            "'soft'.*beta is 2",
        ),
        (
            lambda bb, x: bb.emit(OP.cumsum(quantized(bb, x), 1), "cumulated"),
            SHAPE,
            UnsupportedError,
            "'cumulated' computes relax.cumsum",
        ),
        (lambda bb, x: bb.emit(OP.exp(x)), SHAPE, IRContractError, "no quantizers"),
        (
            lambda bb, x: bb.emit(simulated_quantize(x, spec=U8, kind=Kind.ACTIVATION)),
            SHAPE,
            IRContractError,
            "has no scale",
        ),
        (
            lambda bb, x: quantized(bb, x, spec=QuantSpec(rounding=Rounding.FLOOR)),
            SHAPE,
            UnsupportedError,
            'rounds by .floor.*format="qonnx"',
        ),
    ],
)
def test_what_onnx_cannot_say_is_refused(body, shape, error, message):
    with pytest.raises(error, match=message):
        export_qdq(build(body, x=shape))


def test_an_unknown_format_is_refused():
    with pytest.raises(ConfigError, match=r"'tflite'.*\['qdq', 'qonnx'\]"):
        export_qdq(build(lambda bb, x: quantized(bb, x), x=SHAPE), format="tflite")
