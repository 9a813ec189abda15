"""One test a rule: the whole proposal of the smallest network that shows it."""

import numpy as np
import pytest
from tvm import relax

from plain_tvm import build
from tvm_quant.config import LayerConfig, QuantizeConfig
from tvm_quant.hardware import ARM_DOT, X86_VNNI
from tvm_quant.hardware.signed import S8_AFFINE
from tvm_quant.hardware.x86 import S8, U8
from tvm_quant.op import Kind
from tvm_quant.placement import Candidate, Place, Proposal, propose

OPS = relax.op
CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
FLOAT_TAIL = "no quantized layer reads its result"
FLOAT_HEAD = "its operands are float: quantized after it"


def weight(*shape):
    return relax.const(np.ones(shape, "float32"))


def conv(bb, x, name, channels=4):
    return bb.emit(OPS.nn.conv2d(x, weight(channels, 4, 1, 1)), name)


def proposal(body, config=None, hardware=X86_VNNI, **inputs):
    shapes = inputs or {"x": (1, 4, 8, 8)}
    return propose(build(body, **shapes)["main"], hardware, config or QuantizeConfig())


def at(consumer, port=0):
    return Place(consumer=consumer, port=port)


def reads(source, names, kind=Kind.ACTIVATION, specs=(U8,)):
    """The candidate of a port that reads `source`; names are "node operator"."""
    node, op = names.split()
    return Candidate(source=source, kind=kind, specs=specs, names=(node, f"relax.{op}"))


def kernel(names, axis=0, groups=1):
    node, op = names.split()
    return Candidate(
        source=None,
        kind=Kind.WEIGHT,
        specs=(S8,),
        axis=axis,
        groups=groups,
        names=(node, f"relax.{op}"),
    )


def conv_ports(name, source, kind=Kind.ACTIVATION):
    return {
        at(name): reads(source, f"{name} nn.conv2d", kind),
        at(name, 1): kernel(f"{name} nn.conv2d"),
    }


# Contractions ------------------------------------------------------------------------------------


def test_a_convolution_quantizes_data_and_weight():
    def body(bb, x):
        return conv(bb, x, "conv")

    assert proposal(body) == Proposal(candidates=conv_ports("conv", "x", Kind.INPUT))


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

    assert proposal(body, x=data) == Proposal(
        candidates={
            at("layer"): reads("x", f"layer {op}", Kind.INPUT),
            at("layer", 1): kernel(f"layer {op}", axis, groups),
        }
    )


def test_a_product_of_activations_quantizes_each_operand_as_its_port_wants():
    def body(bb, x, y):
        return bb.emit(OPS.matmul(x, y), "product")

    assert proposal(body, x=(2, 5, 4), y=(2, 4, 8)) == Proposal(
        candidates={
            at("product"): reads("x", "product matmul", Kind.INPUT, (U8,)),
            at("product", 1): reads("y", "product matmul", Kind.INPUT, (S8,)),
        }
    )


def test_a_constant_on_the_left_is_a_weight_with_one_scale():
    def body(bb, x):
        return bb.emit(OPS.matmul(weight(3, 4), x), "product")

    assert proposal(body, x=(4, 8)) == Proposal(
        candidates={
            at("product", 1): reads("x", "product matmul", Kind.INPUT, (S8,)),
            at("product"): kernel("product matmul", axis=None),
        }
    )


def test_the_hardware_row_names_the_grids():
    def body(bb, x):
        return conv(bb, x, "conv")

    candidate = proposal(body, hardware=ARM_DOT).candidates[at("conv")]
    assert candidate == reads("x", "conv nn.conv2d", Kind.INPUT, (S8_AFFINE,))


# What follows a convolution ----------------------------------------------------------------------


def test_bias_and_relu_stay_on_the_accumulator():
    def body(bb, x):
        first = conv(bb, x, "first")
        biased = bb.emit(OPS.add(first, weight(1, 4, 1, 1)), "bias")
        return conv(bb, bb.emit(OPS.nn.relu(biased), "relu"), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT) | conv_ports("second", "relu")
    )


def test_a_tail_that_no_quantized_layer_reads_stays_in_float():
    def body(bb, x):
        pooled = bb.emit(OPS.mean(conv(bb, x, "conv"), [2, 3]), "mean")
        return bb.emit(OPS.nn.softmax(bb.emit(OPS.nn.relu(pooled), "relu")), "softmax")

    assert proposal(body) == Proposal(
        candidates=conv_ports("conv", "x", Kind.INPUT),
        reasons={
            "mean": FLOAT_TAIL,
            "relu": FLOAT_TAIL,
            "softmax": "no integer form of this operator",
        },
    )


def test_a_head_that_reads_float_stays_in_float():
    def body(bb, x):
        return conv(bb, bb.emit(OPS.nn.max_pool2d(x, (2, 2), (2, 2)), "pool"), "conv")

    assert proposal(body) == Proposal(
        candidates=conv_ports("conv", "pool"), reasons={"pool": FLOAT_HEAD}
    )


def test_what_stands_behind_a_float_operator_is_float():
    def body(bb, x):
        sums = bb.emit(OPS.nn.softmax(conv(bb, x, "first")), "softmax")
        return conv(bb, bb.emit(OPS.nn.relu(sums), "relu"), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT) | conv_ports("second", "relu"),
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

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | conv_ports("second", "relu")
        | {at("sum", skip_port): reads("relu", "sum add")}
        | conv_ports("third", "sum")
    )


def test_of_two_accumulators_a_sum_keeps_the_one_computed_last():
    def body(bb, x):
        first, second = conv(bb, x, "first"), conv(bb, x, "second")
        return conv(bb, bb.emit(OPS.subtract(second, first), "difference"), "third")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | conv_ports("second", "x", Kind.INPUT)
        | {at("difference", 1): reads("first", "difference subtract")}
        | conv_ports("third", "difference")
    )


def test_a_sum_of_tapped_tensors_quantizes_both():
    def body(bb, x):
        first, second = conv(bb, x, "first"), conv(bb, x, "second")
        third = conv(bb, bb.emit(OPS.add(first, second), "sum"), "third")
        return first, second, third

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | conv_ports("second", "x", Kind.INPUT)
        | {at("sum"): reads("first", "sum add"), at("sum", 1): reads("second", "sum add")}
        | conv_ports("third", "sum")
    )


def test_a_sum_does_not_keep_an_accumulator_that_is_broadcast():
    def body(bb, x):
        first = bb.emit(OPS.nn.relu(conv(bb, x, "first")), "relu")
        pooled = bb.emit(OPS.mean(first, [2, 3], keepdims=True), "mean")
        gate = conv(bb, pooled, "gate")
        return conv(bb, bb.emit(OPS.add(first, gate), "sum"), "last")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | {at("mean"): reads("relu", "mean mean")}
        | conv_ports("gate", "mean")
        | {at("sum"): reads("relu", "sum add"), at("sum", 1): reads("gate", "sum add")}
        | conv_ports("last", "sum")
    )


def test_a_product_quantizes_both_operands():
    def body(bb, x):
        product = OPS.multiply(conv(bb, x, "first"), conv(bb, x, "second"))
        return conv(bb, bb.emit(product, "product"), "third")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | conv_ports("second", "x", Kind.INPUT)
        | {
            at("product"): reads("first", "product multiply"),
            at("product", 1): reads("second", "product multiply"),
        }
        | conv_ports("third", "product")
    )


def test_a_constant_that_is_larger_than_the_tensor_leaves_the_sum_in_float():
    def body(bb, x):
        small = bb.emit(OPS.mean(conv(bb, x, "first"), [2, 3], keepdims=True), "mean")
        return conv(bb, bb.emit(OPS.add(small, weight(1, 4, 8, 8)), "sum"), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT) | conv_ports("second", "sum"),
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


@pytest.mark.parametrize(
    ("function", "reader"),
    [(silu, "sigmoid sigmoid"), (hard_swish, "moved add"), (quick_gelu, "steep multiply")],
)
def test_a_product_of_functions_of_one_tensor_is_one_table(function, reader):
    def body(bb, x):
        return conv(bb, bb.emit(function(bb, conv(bb, x, "first")), "product"), "second")

    found = proposal(body)
    port = 1 if function is quick_gelu else 0
    assert found == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | {
            at(reader.split()[0], port): reads("first", reader),
            at("product", port): reads("first", "product multiply"),
        }
        | conv_ports("second", "product")
    )


def test_gelu_by_the_error_function_is_one_table():
    def body(bb, x):
        return conv(bb, bb.emit(erf_gelu(bb, conv(bb, x, "first")), "product"), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | {
            at("half"): reads("first", "half multiply"),
            at("scaled"): reads("first", "scaled multiply"),
        }
        | conv_ports("second", "product")
    )


def test_a_chain_of_functions_is_one_table():
    def body(bb, x):
        smooth = bb.emit(OPS.tanh(conv(bb, x, "first")), "tanh")
        return conv(bb, bb.emit(OPS.exp(smooth), "exp"), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | {at("tanh"): reads("first", "tanh tanh")}
        | conv_ports("second", "exp")
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

    found = proposal(network)
    assert found.reasons == {"odd": reason}
    assert found.candidates == (
        conv_ports("first", "x", Kind.INPUT)
        | conv_ports("second", "x", Kind.INPUT)
        | conv_ports("third", "odd")
    )


# Means -------------------------------------------------------------------------------------------


def test_an_average_between_layers_quantizes_its_operand():
    def body(bb, x):
        pooled = OPS.nn.avg_pool2d(conv(bb, x, "first"), (2, 2), (2, 2))
        return conv(bb, bb.emit(pooled, "pool"), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | {at("pool"): reads("first", "pool nn.avg_pool2d")}
        | conv_ports("second", "pool")
    )


# Moves and joins ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "move"),
    [
        ("nn.max_pool2d", lambda x: OPS.nn.max_pool2d(x, (2, 2), (2, 2))),
        ("reshape", lambda x: OPS.reshape(x, (1, 4, 4, 16))),
        ("permute_dims", lambda x: OPS.permute_dims(x, [0, 1, 3, 2])),
        ("nn.pad", lambda x: OPS.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])),
    ],
)
def test_a_quantizer_moves_above_what_only_moves(op, move):
    def body(bb, x):
        return conv(bb, bb.emit(move(conv(bb, x, "first")), "move"), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | {
            at("move"): reads("first", f"move {op}"),
            at("second", 1): kernel("second nn.conv2d"),
        }
    )


def pooled_twice(bb, x, *, tapped=False):
    pool = bb.emit(OPS.nn.max_pool2d(conv(bb, x, "first")), "pool")
    second, third = conv(bb, pool, "second"), conv(bb, pool, "third")
    return (second, third, pool) if tapped else (second, third)


def test_a_quantizer_moves_if_all_readers_ask_the_same():
    assert proposal(pooled_twice) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | {
            at("pool"): reads("first", "pool nn.max_pool2d"),
            at("second", 1): kernel("second nn.conv2d"),
            at("third", 1): kernel("third nn.conv2d"),
        }
    )


STAYING = (
    conv_ports("first", "x", Kind.INPUT)
    | conv_ports("second", "pool")
    | conv_ports("third", "pool")
)


def test_a_quantizer_stays_if_the_result_is_an_output_too():
    found = proposal(lambda bb, x: pooled_twice(bb, x, tapped=True))
    assert found == Proposal(candidates=STAYING)


@pytest.mark.parametrize("layer", [{"nbit_activation": 4}, {"activation_estimator": "mse"}])
def test_a_quantizer_stays_if_a_reader_has_settings_of_its_own(layer):
    config = QuantizeConfig(overrides={"third": LayerConfig(**layer)})
    assert proposal(pooled_twice, config) == Proposal(candidates=STAYING)


def test_settings_of_a_weight_do_not_keep_a_quantizer():
    config = QuantizeConfig(overrides={"third": LayerConfig(nbit_weight=4)})
    assert proposal(pooled_twice, config) == proposal(pooled_twice)


def test_a_quantizer_stays_if_the_other_reader_is_float():
    def body(bb, x):
        pool = bb.emit(OPS.nn.max_pool2d(conv(bb, x, "first")), "pool")
        return conv(bb, pool, "second"), bb.emit(OPS.nn.softmax(pool), "softmax")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT) | conv_ports("second", "pool"),
        reasons={"softmax": "no integer form of this operator"},
    )


def joined(bb, x, *, tapped=False):
    first, second = conv(bb, x, "first", 2), conv(bb, x, "second", 2)
    both = bb.emit(OPS.concat([first, second], axis=1), "both")
    third = conv(bb, both, "third")
    return (third, both) if tapped else third


def test_the_ports_of_a_concat_share_one_grid():
    assert proposal(joined) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | conv_ports("second", "x", Kind.INPUT)
        | {
            at("both"): reads("first", "both concat"),
            at("both", 1): reads("second", "both concat"),
            at("third", 1): kernel("third nn.conv2d"),
        },
        unified=(frozenset({at("both"), at("both", 1)}),),
    )


def test_a_concat_that_is_an_output_too_shares_a_grid_and_is_quantized_again():
    found = proposal(lambda bb, x: joined(bb, x, tapped=True))
    assert found == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT)
        | conv_ports("second", "x", Kind.INPUT)
        | {
            at("both"): reads("first", "both concat"),
            at("both", 1): reads("second", "both concat"),
        }
        | conv_ports("third", "both"),
        unified=(frozenset({at("both"), at("both", 1)}),),
    )


def test_a_concat_shares_the_grid_of_a_move_that_others_read():
    """The quantizer of a pool that a convolution reads too stands above it, and joins the group."""

    def body(bb, x):
        pool = bb.emit(OPS.nn.max_pool2d(conv(bb, x, "first", 2)), "pool")
        second = bb.emit(OPS.nn.conv2d(pool, weight(2, 2, 1, 1)), "second")
        both = bb.emit(OPS.concat([pool, second], axis=1), "both")
        again = bb.emit(OPS.concat([pool, conv(bb, both, "third", 2)], axis=1), "again")
        return bb.emit(OPS.nn.conv2d(again, weight(1, 4, 1, 1)), "end")

    found = proposal(body)
    places = {at("pool"), at("both", 1), at("again", 1)}
    assert found.unified == (frozenset(places),)
    assert {place: found.candidates[place].source for place in places} == {
        at("pool"): "first",
        at("both", 1): "second",
        at("again", 1): "third",
    }


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

    found = proposal(body)
    four = frozenset({at("inner"), at("inner", 1), at("with_c", 1), at("with_d", 1)})
    assert found.unified == (four,)
    assert four <= set(found.candidates)


def test_two_concats_of_one_tensor_have_grids_of_their_own():
    def body(bb, x):
        a, b, c = (conv(bb, x, name, 2) for name in "abc")
        return tuple(
            conv(bb, bb.emit(OPS.concat([a, other], axis=1), f"with_{name}"), f"end_{name}")
            for name, other in (("b", b), ("c", c))
        )

    assert proposal(body).unified == (
        frozenset({at("with_b"), at("with_b", 1)}),
        frozenset({at("with_c"), at("with_c", 1)}),
    )


def test_a_concat_of_an_integer_and_a_float_tensor_quantizes_both():
    def body(bb, x):
        grown = bb.emit(OPS.nn.softmax(x), "softmax")
        both = bb.emit(OPS.concat([conv(bb, x, "first"), grown], axis=1), "both")
        return bb.emit(OPS.nn.conv2d(both, weight(1, 8, 1, 1)), "second")

    found = proposal(body)
    assert found.unified == (frozenset({at("both"), at("both", 1)}),)
    assert found.candidates[at("both", 1)] == reads("softmax", "both concat")


def test_a_concat_of_a_constant_stays_in_float():
    def body(bb, x):
        both = OPS.concat([conv(bb, x, "first"), weight(1, 4, 8, 8)], axis=1)
        return bb.emit(OPS.nn.conv2d(bb.emit(both, "both"), weight(1, 8, 1, 1)), "second")

    assert proposal(body) == Proposal(
        candidates=conv_ports("first", "x", Kind.INPUT) | conv_ports("second", "both"),
        reasons={"both": "joins a constant"},
    )
