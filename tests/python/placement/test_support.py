"""One test a reason for which a call stays in float, and the selection by config."""

import re
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax

from plain_tvm import build
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.hardware import X86_VNNI
from tvm_quant.ir import with_node_names
from tvm_quant.op import Role
from tvm_quant.placement import propose

OPS = relax.op


def weight(*shape, dtype="float32"):
    return relax.const(np.ones(shape, dtype))


def conv(bb, x, name):
    return bb.emit(OPS.nn.conv2d(x, weight(4, 4, 1, 1)), name)


def between(call):
    """A network that has `call` on a convolution's result between two convolutions."""

    def body(bb, x, *others):
        middle = bb.emit(call(conv(bb, x, "first"), *others), "middle")
        flat = bb.emit(OPS.reshape(middle, (-1, 4, 1, 1)), "flat")
        return conv(bb, flat, "last")

    return body


def reasons(body, config=None, hardware=X86_VNNI, **inputs):
    func = build(body, **(inputs or {"x": (1, 4, 8, 8)}))["main"]
    return propose(func, hardware, config or QuantizeConfig()).reasons


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (OPS.nn.softmax, "no integer form of this operator"),
        (
            lambda x: OPS.image.resize2d(x, (16, 16), method="linear"),
            "these attributes compute new values",
        ),
        (
            lambda x: OPS.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "constant", 1.0),
            "these attributes compute new values",
        ),
        (
            lambda x: OPS.nn.avg_pool2d(x, (3, 3), (2, 2), ceil_mode=True),
            "average pooling with ceil_mode",
        ),
        (
            lambda x: OPS.nn.avg_pool2d(x, (2, 2), dilation=(2, 2)),
            "average pooling with dilation",
        ),
        (
            lambda x: OPS.nn.adaptive_avg_pool2d(x, (2, 2)),
            "adaptive pooling to more than one cell",
        ),
        (lambda x: OPS.concat([x, weight(1, 4, 8, 8)], axis=1), "joins a constant"),
    ],
)
def test_a_call_without_integer_form_names_its_reason(call, reason):
    assert reasons(between(call))["middle"] == reason


@pytest.mark.parametrize(
    "call",
    [
        lambda x: OPS.image.resize2d(x, (16, 16), method="nearest_neighbor"),
        lambda x: OPS.nn.avg_pool2d(x, (2, 2), padding=(1, 1), count_include_pad=False),
        lambda x: OPS.nn.adaptive_avg_pool2d(x, (1, 1)),
        lambda x: OPS.mean(x, [2, 3]),
        lambda x: OPS.mean(x, [0, 2, 3]),
    ],
)
def test_its_relatives_with_an_integer_form_have_none(call):
    assert reasons(between(call)) == {}


def test_averages_over_sizes_that_are_not_known_stay_in_float():
    height = tvm.tirx.Var("h", "int64")
    calls = {
        lambda x: OPS.mean(x, [2, 3], keepdims=True): "averages over a dynamic axis",
        lambda x: OPS.nn.adaptive_avg_pool2d(x, (1, 1)): "averages over a dynamic axis",
        lambda x: OPS.nn.avg_pool2d(x, (2, 2), padding=(1, 1), count_include_pad=False): (
            "average pooling that leaves out padding of a dynamic size"
        ),
    }
    for call, reason in calls.items():

        def body(bb, x, call=call):
            return conv(bb, bb.emit(call(conv(bb, x, "first")), "middle"), "last")

        assert reasons(body, x=(1, 4, height, 8)) == {"middle": reason}


def test_a_kernel_that_is_computed_stays_in_float():
    def body(bb, x, w):
        return bb.emit(OPS.nn.conv2d(x, w), "conv")

    found = reasons(body, x=(1, 4, 8, 8), w=(4, 4, 3, 3))
    assert found == {"conv": "the kernel is computed at run time"}


def test_data_that_is_constant_stays_in_float():
    def body(bb, w):
        return bb.emit(OPS.nn.conv2d(weight(1, 4, 8, 8), w), "conv")

    assert "conv" in reasons(body, w=(4, 4, 3, 3))


def test_two_constant_operands_stay_in_float():
    def body(bb, x):
        return x, bb.emit(OPS.matmul(weight(2, 3), weight(3, 4)), "product")

    assert reasons(body) == {"product": "both operands are constant"}


def test_a_vector_operand_stays_in_float():
    def body(bb, x):
        return bb.emit(OPS.matmul(x, weight(4)), "product")

    assert reasons(body, x=(3, 4)) == {"product": "a vector operand"}


def test_tensors_that_are_not_float32_stay_as_they_are():
    def body(bb, ids, x):
        table = bb.emit(OPS.take(x, ids, axis=0), "take")
        half = bb.emit(OPS.matmul(table, weight(8, 8, dtype="float16")), "half")
        return bb.emit(OPS.add(ids, ids), "sum"), half

    found = reasons(body, ids=("int64", 5), x=("float16", 20, 8))
    assert found["sum"] == "int64 tensors are not quantized"
    assert found["half"] == "float16 tensors are not quantized"


def test_a_result_of_unknown_rank_stays_in_float():
    def body(bb, x, shape):
        return bb.emit(OPS.nn.relu(bb.emit(OPS.reshape(x, shape), "reshape")), "relu")

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    shape = relax.Var("shape", relax.ShapeType(ndim=-1))
    with builder.function("main", [x, shape]):
        with builder.dataflow():
            out = builder.emit_output(body(builder, x, shape))
        builder.emit_func_output(out)
    found = propose(builder.get()["main"], X86_VNNI, QuantizeConfig()).reasons
    assert found["reshape"] == "result has no known rank"


def test_a_row_may_leave_operators_in_float():
    hardware = replace(X86_VNNI, name="mine", float_ops=frozenset({"relax.mean"}))
    found = reasons(between(lambda x: OPS.mean(x, [2, 3])), hardware=hardware)
    assert found["middle"] == "hardware row 'mine' has no integer form of this operator"


def test_a_row_may_have_no_grids_for_a_role():
    roles = {role: specs for role, specs in X86_VNNI.roles.items() if role is not Role.MEAN}
    hardware = replace(X86_VNNI, name="mine", roles=roles)
    found = reasons(between(lambda x: OPS.mean(x, [2, 3])), hardware=hardware)
    assert found["middle"] == "hardware row 'mine' has no integer form of this operator"


# Selection by config -----------------------------------------------------------------------------


def network():
    """Three convolutions and a dense layer, with the names of a model file."""

    def body(bb, x):
        for name in ("first", "second", "third"):
            x = conv(bb, x, name)
        flat = bb.emit(OPS.mean(x, [2, 3]), "mean")
        return bb.emit(OPS.matmul(flat, weight(4, 10)), "dense")

    func = build(body, x=(1, 4, 8, 8))["main"]
    names = {"first": "stem.conv", "second": "body.0.conv", "third": "body.1.conv"}
    return with_node_names(func, names | {"dense": "head"})


def quantized(**config):
    """{layer: reason or "int"}."""
    proposal = propose(network(), X86_VNNI, QuantizeConfig(**config))
    integers = {sink for point in proposal.solution.points.values() for sink in point.sinks}
    return {
        layer: proposal.reasons.get(layer, "int" if layer in integers else "nothing")
        for layer in ("first", "second", "third", "mean", "dense")
    }


ALL = dict.fromkeys(("first", "second", "third", "mean", "dense"), "int")


def test_everything_is_quantized_by_default():
    assert quantized() == ALL


@pytest.mark.parametrize(
    ("pattern", "layers"),
    [
        ("stem.conv", ["first"]),
        ("body.*", ["second", "third"]),
        ("relax.nn.conv2d", ["first", "second", "third"]),
        ("relax.matmul", ["dense"]),
    ],
)
def test_skip_leaves_nodes_in_float(pattern, layers):
    found = quantized(skip=(pattern,))
    reason = f"left in float by skip pattern '{pattern}'"
    assert [layer for layer, what in found.items() if what == reason] == layers


def test_the_tail_of_a_skipped_head_is_float_too():
    assert quantized(skip=("head",)) == ALL | {
        "mean": "no quantized layer reads its result",
        "dense": "left in float by skip pattern 'head'",
    }


def test_skip_conv_layers_counts_in_execution_order():
    reason = "left in float by skip_conv_layers"
    assert quantized(skip_conv_layers=(0, 2)) == ALL | {
        "first": reason,
        "third": reason,
        "mean": "its operands are float: quantized after it",
    }


def test_skip_dense_layer_leaves_matrix_products_with_constants_in_float():
    assert quantized(skip_dense_layer=True)["dense"] == "left in float by skip_dense_layer"


def test_skip_dense_layer_spares_products_of_activations():
    config = QuantizeConfig(skip_dense_layer=True)
    found = reasons(lambda bb, x: bb.emit(OPS.matmul(x, x), "product"), config, x=(2, 4, 4))
    assert found == {}


def test_only_selects_the_layers_to_quantize():
    found = quantized(only=("body.*", "head"))
    assert found == ALL | {"first": "not selected by `only`"}


def test_only_selects_operators_too():
    found = quantized(only=("relax.matmul",))
    assert [layer for layer, what in found.items() if what == "int"] == ["dense"]


@pytest.mark.parametrize("field", ["skip", "only"])
def test_a_pattern_that_matches_nothing_is_refused_with_the_names_there_are(field):
    message = re.escape(
        f"{field}: pattern 'body.2.*' matches no node; "
        "nodes are ['body.0.conv', 'body.1.conv', 'head', 'mean', 'stem.conv']."
    )
    with pytest.raises(ConfigError, match=message):
        quantized(**{field: ("body.2.*",)})


def test_an_index_beyond_the_last_convolution_is_refused():
    message = re.escape("skip_conv_layers names [3, 7], but the network has 3 convolution(s)")
    with pytest.raises(ConfigError, match=message):
        quantized(skip_conv_layers=(1, 3, 7))
