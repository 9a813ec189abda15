"""What moves integers: the result is the float operator's on the values of the codes."""

import numpy as np
import pytest
from tvm import relax

from plain_tvm import build, run, run_one
from realized import S8, U8, U16, Grid, dtypes, normal, realize, to_float32, weight_grid
from tvm_quant.op import Convention, Kind, QuantSpec, simulated_quantize

OP = relax.op
SHAPE = (2, 4, 6, 8)
GRIDS = {"u8": Grid(0.03, 117), "s8": Grid(0.03, 0, S8), "u16": Grid(1e-4, 30000, U16)}

MOVES = {
    "reshape": lambda v: OP.reshape(v, (2, 24, 8)),
    "permute_dims": lambda v: OP.permute_dims(v, [0, 2, 3, 1]),
    "flatten": OP.flatten,
    "expand_dims": lambda v: OP.expand_dims(v, 1),
    "squeeze": lambda v: OP.squeeze(OP.expand_dims(v, 1), 1),
    "strided_slice": lambda v: OP.strided_slice(v, [1, 2], [1, 0], [3, 6], [1, 2]),
    "broadcast_to": lambda v: OP.broadcast_to(OP.expand_dims(v, 0), (3, *SHAPE)),
    "max": lambda v: OP.max(v, [2, 3], keepdims=True),
    "min": lambda v: OP.min(v, 1),
    "flip": lambda v: OP.flip(v, 3),
    "tile": lambda v: OP.tile(v, (1, 2, 1, 1)),
    "repeat": lambda v: OP.repeat(v, 2, 1),
    "max_pool1d": lambda v: OP.nn.max_pool1d(OP.reshape(v, (2, 4, 48)), 3, 2, 1),
    "max_pool2d": lambda v: OP.nn.max_pool2d(v, (3, 3), (2, 2), (1, 1)),
    "max_pool2d with ceil_mode": lambda v: OP.nn.max_pool2d(v, (3, 3), (2, 2), ceil_mode=True),
    "max_pool3d": lambda v: OP.nn.max_pool3d(OP.expand_dims(v, 1), (2, 2, 2), (2, 2, 2)),
    "resize2d": lambda v: OP.image.resize2d(v, (12, 20), method="nearest_neighbor"),
    "pad": lambda v: OP.nn.pad(v, [0, 0, 0, 0, 1, 2, 3, 0]),
    "reflect": lambda v: OP.nn.pad(v, [0, 0, 0, 0, 1, 2, 3, 0], "reflect"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_moves_keep_codes_and_scale(move):
    check_move(move, GRIDS["u8"])


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("move", ["pad", "max_pool2d", "max"])
def test_moves_of_every_grid(move, grid):
    check_move(MOVES[move], grid)


def check_move(move, grid):
    x = normal(*SHAPE, scale=2.0)

    def body(bb, x):
        return bb.emit(move(grid.quantize(bb, x)), "moved")

    simulated, mod = build(body, x=SHAPE), realize(body, x=SHAPE)
    assert dtypes(mod)["moved"] == grid.spec.dtype
    np.testing.assert_array_equal(run_one(mod, x), run_one(simulated, x))


@pytest.mark.parametrize(
    "call",
    [
        lambda v: OP.nn.pad(v, [0, 0, 0, 0, 1, 1, 1, 1], "constant", 1.0),
        lambda v: OP.image.resize2d(v, (12, 20), method="linear"),
        lambda v: OP.nn.avg_pool2d(v, (3, 3), (2, 2), ceil_mode=True),
        lambda v: OP.nn.avg_pool2d(v, (2, 2), dilation=(2, 2)),
        lambda v: OP.nn.adaptive_avg_pool2d(v, (2, 2)),
    ],
)
def test_attributes_that_compute_new_values_are_computed_in_float(call):
    x, grid = normal(*SHAPE), GRIDS["u8"]

    def body(bb, x):
        return bb.emit(call(grid.quantize(bb, x)), "value")

    mod = realize(body, x=SHAPE)
    assert dtypes(mod)["value"] == "float32"
    np.testing.assert_array_equal(run_one(mod, x), run_one(build(body, x=SHAPE), x))


def accumulator(bb, x, weight, kernel):
    operands = GRIDS["u8"].quantize(bb, x), kernel.quantize(bb, relax.const(weight))
    return bb.emit(OP.nn.conv2d(*operands), "conv")


def test_an_accumulator_with_one_scale_is_moved():
    x, weight, bias = normal(*SHAPE), normal(4, 4, 1, 1, seed=1), normal(1, 4, 1, 1, seed=2)
    kernel = weight_grid(weight)

    def body(bb, x):
        moved = OP.add(accumulator(bb, x, weight, kernel), relax.const(bias))
        return bb.emit(OP.nn.max_pool2d(OP.nn.relu(moved), (2, 2), (2, 2)), "moved")

    mod = realize(body, x=SHAPE)
    scale = np.float64(GRIDS["u8"].scale) * np.float64(kernel.scale)
    acc = np.einsum("nchw,oc->nohw", GRIDS["u8"].steps(x), kernel.steps(weight)[..., 0, 0])
    acc = np.maximum(acc + np.round(bias / scale).astype("int64"), 0)
    acc = acc.reshape(2, 4, 3, 2, 4, 2).max(axis=(3, 5))
    assert dtypes(mod)["moved"] == "int32"
    np.testing.assert_array_equal(run_one(mod, x), to_float32(acc, scale))


def test_an_accumulator_with_a_scale_per_channel_is_moved_in_float():
    x, weight = normal(*SHAPE), normal(4, 4, 1, 1, seed=1)
    kernel = weight_grid(weight, 0)

    def body(bb, x):
        moved = OP.permute_dims(accumulator(bb, x, weight, kernel), [0, 2, 3, 1])
        return bb.emit(moved, "moved")

    mod = realize(body, x=SHAPE)
    assert (dtypes(mod)["conv"], dtypes(mod)["moved"]) == ("int32", "float32")
    expected = run_one(build(body, x=SHAPE), x)
    np.testing.assert_allclose(run_one(mod, x), expected, rtol=1e-5, atol=1e-6)


def test_codes_with_a_scale_per_channel_are_moved_in_float():
    spec = QuantSpec(signed=False, symmetric=False, axis=1)
    grid = Grid(
        np.array([0.02, 0.03, 0.05, 0.1]).reshape(1, 4, 1, 1), np.full((1, 4, 1, 1), 9), spec
    )
    x = normal(*SHAPE)

    def body(bb, x):
        return bb.emit(OP.permute_dims(grid.quantize(bb, x), [0, 2, 3, 1]), "moved")

    mod = realize(body, x=SHAPE)
    np.testing.assert_array_equal(run_one(mod, x), run_one(build(body, x=SHAPE), x))


@pytest.mark.parametrize("relu", [False, True])
def test_exact_codes_move_with_the_scales_of_their_channels(relu):
    weight, x = normal(4, 4, 1, 1, seed=1), normal(*SHAPE)
    kernel = weight_grid(weight, 0)
    bias = normal(1, 4, 1, 1, seed=2)

    def body(bb, x):
        value = bb.emit(OP.add(accumulator(bb, x, weight, kernel), relax.const(bias)))
        value = bb.emit(OP.nn.relu(value)) if relu else value
        value = bb.emit(OP.permute_dims(value, [0, 2, 3, 1]), "moved")
        value = bb.emit(OP.reshape(value, (value.ty.shape.values[0], -1)), "flat")
        call = simulated_quantize(
            value, 0.11, 9, spec=U8, kind=Kind.ACTIVATION, convention=Convention.EXACT
        )
        return bb.emit(call, "q")

    mod = realize(body, x=SHAPE)
    assert (dtypes(mod)["moved"], dtypes(mod)["flat"]) == ("int32", "int32")
    np.testing.assert_array_equal(run_one(mod, x), run_one(build(body, x=SHAPE), x))


# Joins -------------------------------------------------------------------------------------------


def concat(*grids):
    def body(bb, *inputs):
        fields = [grid.quantize(bb, x) for grid, x in zip(grids, inputs, strict=True)]
        return bb.emit(OP.concat(fields, axis=1), "joined")

    return body


@pytest.mark.parametrize("count", [1, 2, 3])
def test_codes_of_one_grid_are_joined(count):
    data = [normal(*SHAPE, seed=seed) for seed in range(count)]
    shapes = {f"x{index}": SHAPE for index in range(count)}
    body = concat(*[Grid(0.03, 117)] * count)
    mod = realize(body, **shapes)
    assert dtypes(mod)["joined"] == "uint8"
    np.testing.assert_array_equal(run_one(mod, *data), run_one(build(body, **shapes), *data))


@pytest.mark.parametrize(
    "other", [Grid(0.04, 117), Grid(0.03, 116), Grid(0.03, 117, U16)], ids=["scale", "zero", "bits"]
)
def test_codes_of_two_grids_are_joined_in_float(other):
    x, y = normal(*SHAPE), normal(*SHAPE, seed=1)
    body = concat(Grid(0.03, 117), other)
    mod = realize(body, x=SHAPE, y=SHAPE)
    assert dtypes(mod)["joined"] == "float32"
    np.testing.assert_array_equal(run_one(mod, x, y), run_one(build(body, x=SHAPE, y=SHAPE), x, y))


def test_codes_and_floats_are_joined_in_float():
    x, y, grid = normal(*SHAPE), normal(*SHAPE, seed=1), GRIDS["u8"]

    def body(bb, x, y):
        first = bb.emit(OP.concat([grid.quantize(bb, x), y], axis=1), "first")
        return first, bb.emit(OP.concat([y, grid.quantize(bb, x)], axis=1), "second")

    mod = realize(body, x=SHAPE, y=SHAPE)
    for result, expected in zip(
        run(mod, x, y), run(build(body, x=SHAPE, y=SHAPE), x, y), strict=True
    ):
        np.testing.assert_array_equal(result, expected)
