"""One test a rule: the whole proposal of the smallest network that shows it."""

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from placement.placed import placed
from plain_tvm import build
from tvm_quant.config import LayerConfig, MergeRule, QuantizeConfig
from tvm_quant.hardware import ARM_DOT, X86_VNNI, OperandGrids, grids
from tvm_quant.op import Kind, Role
from tvm_quant.placement import Tensor, propose

OPS = relax.op
CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
FLOAT_TAIL = "no quantized layer reads its result"
FLOAT_HEAD = "its operands are float: quantized after it"
U8, S8, WEIGHT = "8ANu", "8SNsn", "8SCsn"


def weight(*shape):
    return relax.const(np.ones(shape, "float32"))


def conv(bb, x, name, channels=4):
    return bb.emit(OPS.nn.conv2d(x, weight(channels, 4, 1, 1)), name)


def propose_for(body, config=None, hardware=X86_VNNI, **inputs):
    shapes = inputs or {"x": (1, 4, 8, 8)}
    return propose(build(body, **shapes)["main"], hardware, config or QuantizeConfig())


def places(body, config=None, hardware=X86_VNNI, **inputs):
    return placed(propose_for(body, config, hardware, **inputs))


def kernels(*names):
    """The weights of convolutions."""
    return {f"in({name},1)": WEIGHT for name in names}


def expected(points, unified=(), reasons=None):
    return {"points": points, "unified": sorted(map(sorted, unified)), "reasons": reasons or {}}


# Contractions ------------------------------------------------------------------------------------


def test_a_convolution_quantizes_data_and_weight():
    def body(bb, x):
        return conv(bb, x, "conv")

    assert places(body) == expected({"out(x)": U8} | kernels("conv"))


@pytest.mark.parametrize(
    ("op", "data", "shape", "attrs", "axis", "groups"),
    [
        ("nn.conv1d", (1, 4, 9), (8, 4, 3), {}, 0, 1),
        ("nn.conv2d", (1, 4, 9, 9), (8, 1, 3, 3), {"groups": 4}, 0, 1),
        ("nn.conv2d", (1, 9, 9, 4), (3, 3, 4, 8), CHANNELS_LAST, 3, 1),
        ("nn.conv3d", (1, 4, 5, 9, 9), (8, 4, 3, 3, 3), {}, 0, 1),
        ("nn.conv1d_transpose", (1, 4, 9), (4, 8, 3), {}, 1, 1),
        ("nn.conv2d_transpose", (1, 4, 9, 9), (4, 2, 3, 3), {"groups": 2}, 1, 2),
        ("matmul", (5, 4), (4, 8), {}, 1, 1),
        ("matmul", (2, 5, 4), (4, 8), {}, 1, 1),
    ],
)
def test_a_weight_has_one_scale_for_each_output_channel(op, data, shape, attrs, axis, groups):
    function = getattr(OPS.nn, op.removeprefix("nn.")) if "nn." in op else OPS.matmul

    def body(bb, x):
        return bb.emit(function(x, weight(*shape), **attrs), "layer")

    found = propose_for(body, x=data)
    assert placed(found) == expected({"out(x)": U8} | kernels("layer"))
    tensors = {str(place): tensor for place, tensor in found.tensors.items()}
    assert tensors["in(layer,1)"] == Tensor(kind=Kind.WEIGHT, axis=axis, groups=groups)
    assert tensors["out(x)"].kind is Kind.INPUT


def test_a_product_of_activations_quantizes_each_operand_as_its_port_wants():
    def body(bb, x, y):
        return bb.emit(OPS.matmul(x, y), "product")

    found = places(body, x=(2, 5, 4), y=(2, 4, 8))
    assert found == expected({"out(x)": U8, "out(y)": S8})


def test_a_tensor_that_two_ports_want_in_two_grids_is_quantized_at_each_port():
    def body(bb, x):
        return bb.emit(OPS.matmul(x, x), "square")

    assert places(body, x=(2, 4, 4)) == expected({"in(square,0)": U8, "in(square,1)": S8})


def test_a_constant_on_the_left_is_a_weight_with_one_scale():
    def body(bb, x):
        return bb.emit(OPS.matmul(weight(3, 4), x), "product")

    found = propose_for(body, x=(4, 8))
    assert placed(found) == expected({"out(x)": S8, "in(product,0)": WEIGHT})
    (tensor,) = (t for t in found.tensors.values() if t.kind is Kind.WEIGHT)
    assert tensor.axis is None


def test_the_hardware_row_names_the_grids():
    def body(bb, x):
        return conv(bb, x, "conv")

    assert places(body, hardware=ARM_DOT) == expected({"out(x)": "8ANs"} | kernels("conv"))


def test_a_depthwise_convolution_has_a_row_of_its_own():
    mine = OperandGrids(data=grids("8SC"), other=grids("8SC"), weight=grids("8SCsn"))
    hardware = replace(X86_VNNI, name="mine", ops={"relax.nn.conv2d:depthwise": mine})

    def body(bb, x):
        first = conv(bb, x, "first")
        return bb.emit(OPS.nn.conv2d(first, weight(4, 1, 3, 3), groups=4), "depthwise")

    found = propose_for(body, hardware=hardware)
    assert placed(found) == expected(
        {"out(x)": U8, "out(first)": "8SC"} | kernels("first", "depthwise")
    )
    (tensor,) = (t for place, t in found.tensors.items() if str(place) == "out(first)")
    assert tensor == Tensor(kind=Kind.ACTIVATION, axis=1)


# What follows a convolution ----------------------------------------------------------------------


def test_bias_and_relu_stay_on_the_accumulator():
    def body(bb, x):
        first = conv(bb, x, "first")
        biased = bb.emit(OPS.add(first, weight(1, 4, 1, 1)), "bias")
        return conv(bb, bb.emit(OPS.nn.relu(biased), "relu"), "second")

    assert places(body) == expected({"out(x)": U8, "out(relu)": U8} | kernels("first", "second"))


def test_a_tail_that_no_quantized_layer_reads_stays_in_float():
    def body(bb, x):
        pooled = bb.emit(OPS.mean(conv(bb, x, "conv"), [2, 3]), "mean")
        return bb.emit(OPS.nn.softmax(bb.emit(OPS.nn.relu(pooled), "relu")), "softmax")

    assert places(body) == expected(
        {"out(x)": U8} | kernels("conv"),
        reasons={
            "mean": FLOAT_TAIL,
            "relu": FLOAT_TAIL,
            "softmax": "no integer form of this operator",
        },
    )


def test_an_average_reads_codes_where_sums_cannot_leave_the_device():
    def body(bb, x):
        pooled = bb.emit(OPS.mean(conv(bb, x, "conv"), [2, 3]), "mean")
        return bb.emit(OPS.nn.softmax(pooled), "softmax")

    hardware = replace(X86_VNNI, sums_leave=False)
    assert places(body, hardware=hardware) == expected(
        {"out(x)": U8, "out(conv)": U8} | kernels("conv"),
        reasons={"softmax": "no integer form of this operator"},
    )


def test_what_stands_behind_a_float_operator_is_float():
    def body(bb, x):
        sums = bb.emit(OPS.nn.softmax(conv(bb, x, "first")), "softmax")
        return conv(bb, bb.emit(OPS.nn.relu(sums), "relu"), "second")

    assert places(body) == expected(
        {"out(x)": U8, "out(relu)": U8} | kernels("first", "second"),
        reasons={"softmax": "no integer form of this operator", "relu": FLOAT_HEAD},
    )


# Sums and products -------------------------------------------------------------------------------


def residual(bb, x):
    first = bb.emit(OPS.nn.relu(conv(bb, x, "first")), "relu")
    return first, conv(bb, first, "second")


@pytest.mark.parametrize("skip_port", [0, 1])
def test_a_sum_keeps_the_convolution_that_feeds_it_alone_as_an_accumulator(skip_port):
    def body(bb, x):
        skipped, branch = residual(bb, x)
        operands = (skipped, branch) if skip_port == 0 else (branch, skipped)
        return conv(bb, bb.emit(OPS.add(*operands), "sum"), "third")

    assert places(body) == expected(
        {"out(x)": U8, "out(relu)": U8, "out(sum)": U8} | kernels("first", "second", "third")
    )


def test_of_two_accumulators_a_sum_keeps_the_one_computed_last():
    def body(bb, x):
        first, second = conv(bb, x, "first"), conv(bb, x, "second")
        return conv(bb, bb.emit(OPS.subtract(second, first), "difference"), "third")

    assert places(body) == expected(
        {"out(x)": U8, "out(first)": U8, "out(difference)": U8}
        | kernels("first", "second", "third")
    )


def test_a_sum_of_tapped_tensors_quantizes_both_at_its_ports():
    def body(bb, x):
        first, second = conv(bb, x, "first"), conv(bb, x, "second")
        third = conv(bb, bb.emit(OPS.add(first, second), "sum"), "third")
        return first, second, third

    assert places(body) == expected(
        {"out(x)": U8, "in(sum,0)": U8, "in(sum,1)": U8, "out(sum)": U8}
        | kernels("first", "second", "third")
    )


def test_a_sum_does_not_keep_an_accumulator_that_is_broadcast():
    def body(bb, x):
        first = bb.emit(OPS.nn.relu(conv(bb, x, "first")), "relu")
        pooled = bb.emit(OPS.mean(first, [2, 3], keepdims=True), "mean")
        gate = conv(bb, pooled, "gate")
        return conv(bb, bb.emit(OPS.add(first, gate), "sum"), "last")

    assert places(body) == expected(
        dict.fromkeys(("out(x)", "out(relu)", "out(mean)", "out(gate)", "out(sum)"), U8)
        | kernels("first", "gate", "last")
    )


def test_a_product_quantizes_both_operands():
    def body(bb, x):
        product = OPS.multiply(conv(bb, x, "first"), conv(bb, x, "second"))
        return conv(bb, bb.emit(product, "product"), "third")

    assert places(body) == expected(
        dict.fromkeys(("out(x)", "out(first)", "out(second)", "out(product)"), U8)
        | kernels("first", "second", "third")
    )


def test_a_constant_that_is_larger_than_the_tensor_leaves_the_sum_in_float():
    def body(bb, x):
        small = bb.emit(OPS.mean(conv(bb, x, "first"), [2, 3], keepdims=True), "mean")
        return conv(bb, bb.emit(OPS.add(small, weight(1, 4, 8, 8)), "sum"), "second")

    assert places(body) == expected(
        {"out(x)": U8, "out(sum)": U8} | kernels("first", "second"),
        reasons={"mean": FLOAT_TAIL, "sum": "a constant that is larger than the tensor"},
    )


# Functions of one element ------------------------------------------------------------------------


def silu(bb, x):
    return OPS.multiply(x, bb.emit(OPS.sigmoid(x), "sigmoid"))


def hard_swish(bb, x):
    moved = bb.emit(OPS.add(x, relax.const(3.0, "float32")), "moved")
    gate = bb.emit(OPS.multiply(bb.emit(OPS.clip(moved, 0, 6), "clip"), relax.const(1 / 6)), "gate")
    return OPS.multiply(x, gate)


def quick_gelu(bb, x):
    steep = bb.emit(OPS.multiply(relax.const(1.702, "float32"), x), "steep")
    return OPS.multiply(bb.emit(OPS.sigmoid(steep), "sigmoid"), x)


def erf_gelu(bb, x):
    half = bb.emit(OPS.multiply(x, relax.const(0.5, "float32")), "half")
    error = bb.emit(OPS.erf(bb.emit(OPS.multiply(x, relax.const(0.7071)), "scaled")), "error")
    return OPS.multiply(half, bb.emit(OPS.add(error, relax.const(1.0, "float32")), "plus"))


@pytest.mark.parametrize("function", [silu, hard_swish, quick_gelu, erf_gelu])
def test_a_product_of_functions_of_one_tensor_is_one_table(function):
    def body(bb, x):
        return conv(bb, bb.emit(function(bb, conv(bb, x, "first")), "product"), "second")

    assert places(body) == expected(
        {"out(x)": U8, "out(first)": U8, "out(product)": U8} | kernels("first", "second")
    )


def test_a_chain_of_functions_is_one_table():
    def body(bb, x):
        smooth = bb.emit(OPS.tanh(conv(bb, x, "first")), "tanh")
        return conv(bb, bb.emit(OPS.exp(smooth), "exp"), "second")

    assert places(body) == expected(
        {"out(x)": U8, "out(first)": U8, "out(exp)": U8} | kernels("first", "second")
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x, _y: OPS.divide(x, weight(1, 4, 1, 1)), "a constant per channel"),
        (lambda x, y: OPS.maximum(x, y), "combines two tensors"),
    ],
)
def test_a_function_of_more_than_one_element_stays_in_float(body, reason):
    def network(bb, x):
        combined = body(conv(bb, x, "first"), conv(bb, x, "second"))
        return conv(bb, bb.emit(combined, "odd"), "third")

    assert places(network) == expected(
        {"out(x)": U8, "out(odd)": U8} | kernels("first", "second", "third"),
        reasons={"odd": reason},
    )


# Means -------------------------------------------------------------------------------------------


def test_an_average_between_layers_quantizes_its_operand():
    def body(bb, x):
        pooled = OPS.nn.avg_pool2d(conv(bb, x, "first"), (2, 2), (2, 2))
        return conv(bb, bb.emit(pooled, "pool"), "second")

    assert places(body) == expected(
        {"out(x)": U8, "out(first)": U8, "out(pool)": U8} | kernels("first", "second")
    )


# Moves and joins ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "move",
    [
        lambda x: OPS.nn.max_pool2d(x, (2, 2), (2, 2)),
        lambda x: OPS.reshape(x, (1, 4, 4, 16)),
        lambda x: OPS.permute_dims(x, [0, 1, 3, 2]),
        lambda x: OPS.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]),
    ],
)
def test_a_quantizer_climbs_through_what_only_moves(move):
    def body(bb, x):
        return conv(bb, bb.emit(move(conv(bb, x, "first")), "move"), "second")

    assert places(body) == expected({"out(x)": U8, "out(first)": U8} | kernels("first", "second"))


def test_a_quantizer_climbs_to_the_input_of_the_network():
    def body(bb, x):
        return conv(bb, bb.emit(OPS.nn.max_pool2d(x, (2, 2), (2, 2)), "pool"), "conv")

    assert places(body) == expected({"out(x)": U8} | kernels("conv"))


def pooled_twice(bb, x, *, tapped=False):
    pool = bb.emit(OPS.nn.max_pool2d(conv(bb, x, "first")), "pool")
    second, third = conv(bb, pool, "second"), conv(bb, pool, "third")
    return (second, third, pool) if tapped else (second, third)


LAYERS = kernels("first", "second", "third")


def test_a_quantizer_climbs_from_a_fork_if_all_readers_ask_the_same():
    assert places(pooled_twice) == expected({"out(x)": U8, "out(first)": U8} | LAYERS)


def test_branches_that_never_merge_keep_their_own():
    found = places(pooled_twice, QuantizeConfig(merge_branches=MergeRule.NEVER))
    assert found == expected(
        {"out(x)": U8, "in(second,0)": U8, "in(third,0)": U8} | LAYERS,
        reasons={"pool": "what reads it accepts no common grid"},
    )


def test_a_quantizer_stays_below_a_fork_if_the_tensor_is_an_output_too():
    assert places(lambda bb, x: pooled_twice(bb, x, tapped=True)) == expected(
        {"out(x)": U8, "in(second,0)": U8, "in(third,0)": U8} | LAYERS,
        reasons={"pool": "the network returns it"},
    )


def test_a_quantizer_stays_if_a_reader_has_an_estimator_of_its_own():
    config = QuantizeConfig(overrides={"third": LayerConfig(activation_estimator="mse")})
    assert places(pooled_twice, config) == expected(
        {"out(x)": U8, "in(second,0)": U8, "in(third,0)": U8} | LAYERS,
        reasons={"pool": "'third' has a quantizer of its own"},
    )


def test_a_quantizer_stays_if_a_reader_has_a_width_of_its_own():
    config = QuantizeConfig(overrides={"third": LayerConfig(nbit_activation=4)})
    assert places(pooled_twice, config) == expected(
        {"out(x)": U8, "in(second,0)": U8, "in(third,0)": "4ANu"} | LAYERS,
        reasons={"pool": "'third' has a quantizer of its own"},
    )


def test_settings_of_a_weight_do_not_keep_a_quantizer():
    config = QuantizeConfig(overrides={"third": LayerConfig(nbit_weight=4)})
    assert places(pooled_twice, config) == expected(
        {"out(x)": U8, "out(first)": U8} | LAYERS | {"in(third,1)": "4SCsn"}
    )


def test_a_quantizer_stays_if_the_other_reader_is_float():
    def body(bb, x):
        pool = bb.emit(OPS.nn.max_pool2d(conv(bb, x, "first")), "pool")
        return conv(bb, pool, "second"), bb.emit(OPS.nn.softmax(pool), "softmax")

    assert places(body) == expected(
        {"out(x)": U8, "in(second,0)": U8} | kernels("first", "second"),
        reasons={
            "pool": "'softmax' reads it in float",
            "softmax": "no integer form of this operator",
        },
    )


def joined(bb, x, *, tapped=False):
    first, second = conv(bb, x, "first", 2), conv(bb, x, "second", 2)
    both = bb.emit(OPS.concat([first, second], axis=1), "both")
    third = conv(bb, both, "third")
    return (third, both) if tapped else third


def test_the_inputs_of_a_concat_share_one_grid():
    assert places(joined) == expected(
        {"out(x)": U8, "out(first)": U8, "out(second)": U8} | LAYERS,
        unified=[["out(first)", "out(second)"]],
    )


def test_a_concat_that_is_an_output_too_stays_in_float():
    assert places(lambda bb, x: joined(bb, x, tapped=True)) == expected(
        {"out(x)": U8, "in(third,0)": U8} | LAYERS, reasons={"both": "the network returns it"}
    )


def test_a_concat_shares_the_grid_of_a_move_that_others_read():
    def body(bb, x):
        pool = bb.emit(OPS.nn.max_pool2d(conv(bb, x, "first", 2)), "pool")
        second = bb.emit(OPS.nn.conv2d(pool, weight(2, 2, 1, 1)), "second")
        both = bb.emit(OPS.concat([pool, second], axis=1), "both")
        again = bb.emit(OPS.concat([pool, conv(bb, both, "third", 2)], axis=1), "again")
        return bb.emit(OPS.nn.conv2d(again, weight(1, 4, 1, 1)), "end")

    sources = ["out(first)", "out(second)", "out(third)"]
    assert places(body) == expected(
        {"out(x)": U8} | dict.fromkeys(sources, U8) | LAYERS | kernels("end"), unified=[sources]
    )


def test_concats_of_concats_share_one_grid_through_moves():
    def body(bb, x):
        inner = bb.emit(OPS.concat([conv(bb, x, "a", 2), conv(bb, x, "b", 2)], axis=1), "inner")
        moved = bb.emit(OPS.nn.max_pool2d(inner), "moved")
        outer = [
            bb.emit(OPS.concat([moved, conv(bb, x, name, 2)], axis=1), f"with_{name}")
            for name in ("c", "d")
        ]
        return tuple(
            bb.emit(OPS.nn.conv2d(part, weight(1, 6, 1, 1)), f"end{index}")
            for index, part in enumerate(outer)
        )

    found = places(body)
    assert found["unified"] == [["out(a)", "out(b)", "out(c)", "out(d)"]]
    assert found["reasons"] == {}


def test_two_concats_of_one_tensor_share_its_scale():
    """One quantizer behind `a` serves both, so all three tensors have its scale."""

    def body(bb, x):
        a, b, c = (conv(bb, x, name, 2) for name in "abc")
        return tuple(
            conv(bb, bb.emit(OPS.concat([a, other], axis=1), f"with_{name}"), f"end_{name}")
            for name, other in (("b", b), ("c", c))
        )

    assert places(body)["unified"] == [["out(a)", "out(b)", "out(c)"]]


def test_a_concat_of_an_integer_and_a_float_tensor_quantizes_both():
    def body(bb, x):
        grown = bb.emit(OPS.nn.softmax(x), "softmax")
        both = bb.emit(OPS.concat([conv(bb, x, "first"), grown], axis=1), "both")
        return bb.emit(OPS.nn.conv2d(both, weight(1, 8, 1, 1)), "second")

    assert places(body) == expected(
        {"in(first,0)": U8, "out(first)": U8, "out(softmax)": U8} | kernels("first", "second"),
        unified=[["out(first)", "out(softmax)"]],
        reasons={"softmax": "no integer form of this operator"},
    )


def test_a_concat_of_a_constant_stays_in_float():
    def body(bb, x):
        both = OPS.concat([conv(bb, x, "first"), weight(1, 4, 8, 8)], axis=1)
        return bb.emit(OPS.nn.conv2d(bb.emit(both, "both"), weight(1, 8, 1, 1)), "second")

    assert places(body) == expected(
        {"out(x)": U8, "out(both)": U8} | kernels("first", "second"),
        reasons={"both": "joins a constant"},
    )


def test_a_depthwise_branch_with_settings_of_its_own_keeps_scales_per_channel_at_a_fork():
    fine = OperandGrids(data=grids("8SC 8SN"), other=grids("8SN"), weight=grids("8SCsn"))
    plain = OperandGrids(data=grids("8SN"), other=grids("8SN"), weight=grids("8SCsn"))
    hardware = replace(
        X86_VNNI,
        name="mine",
        roles=dict.fromkeys(Role, plain),
        ops={"relax.nn.conv2d:depthwise": fine},
    )

    def body(bb, x):
        first = conv(bb, x, "first")
        deep = bb.emit(OPS.nn.conv2d(first, weight(4, 1, 3, 3), groups=4), "deep")
        return conv(bb, first, "wide"), deep

    merged = {"out(x)": "8SN", "out(first)": "8SN"}
    apart = {"out(x)": "8SN", "in(wide,0)": "8SN", "in(deep,0)": "8SC 8SN"}
    layers = kernels("first", "wide", "deep")
    assert places(body, hardware=hardware) == expected(merged | layers)
    own = QuantizeConfig(overrides={"deep": LayerConfig(nbit_activation=8)})
    assert places(body, own, hardware) == expected(apart | layers)
