import numpy as np
import pytest
from tvm import relax, tirx

from numpy_network import all_values
from plain_tvm import build
from realized import normal
from tvm_quant.ir import bindings, constant_value
from tvm_quant.op import contraction_axes
from tvm_quant.transform.weight_rounding import (
    Blocks,
    LayerReading,
    Patches,
    blocks,
    gather_moments,
    patches,
)

R, NN = relax.op, relax.op.nn
ALL = slice(None)


def const(*shape, seed=1):
    return relax.const(normal(*shape, seed=seed))


#: {name: (shape of the data, layer)}
LAYERS = {
    "plain": ((4, 6, 5), lambda x: NN.conv2d(x, const(8, 4, 3, 2))),
    "padded": ((4, 6, 5), lambda x: NN.conv2d(x, const(8, 4, 3, 3), padding=(1, 0, 1, 2))),
    "strided": ((4, 7, 5), lambda x: NN.conv2d(x, const(8, 4, 3, 3), strides=2, padding=1)),
    "dilated": ((4, 8, 7), lambda x: NN.conv2d(x, const(8, 4, 3, 3), dilation=2, padding=2)),
    "grouped": ((4, 6, 5), lambda x: NN.conv2d(x, const(6, 2, 3, 3), groups=2, padding=1)),
    "depthwise": ((4, 6, 5), lambda x: NN.conv2d(x, const(8, 1, 3, 3), groups=4, padding=1)),
    "channels last": (
        (6, 5, 4),
        lambda x: NN.conv2d(
            x, const(3, 3, 4, 8), padding=1, data_layout="NHWC", kernel_layout="HWIO"
        ),
    ),
    "1d": ((4, 9), lambda x: NN.conv1d(x, const(8, 4, 3), padding=1)),
    "3d": ((2, 4, 3, 5), lambda x: NN.conv3d(x, const(3, 2, 3, 2, 1), padding=1)),
    "transposed": (
        (4, 3, 4),
        lambda x: NN.conv2d_transpose(x, const(4, 6, 3, 3), strides=2, padding=1),
    ),
    "transposed groups": (
        (4, 3, 4),
        lambda x: NN.conv2d_transpose(x, const(4, 3, 3, 2), strides=(2, 1), groups=2),
    ),
    "matmul": ((7, 5), lambda x: R.matmul(x, const(5, 6))),
    "matmul of a map": ((3, 4, 5), lambda x: R.matmul(x, const(5, 6))),
}


def network(shape, layer, batch=1):
    return build(lambda b, x: b.emit(layer(x), "y"), x=(batch, *shape))


def layer_of(mod):
    call = next(binding.value for binding in bindings(mod["main"]))
    weight = constant_value(call.args[1])
    return call, weight, Blocks(weight.shape, contraction_axes(call))


def moments_of(mod, *data):
    call, _weight, split = layer_of(mod)
    reading = LayerReading(operand="x", patches=Patches.of(call), blocks=split)
    return gather_moments(mod, {"y": reading}, [{"x": x} for x in data])["y"]


@pytest.mark.parametrize("name", LAYERS)
def test_moments_of_the_inputs_tell_mean_and_variance_of_each_output(monkeypatch, name):
    monkeypatch.setattr(patches, "POSITIONS", 100)
    shape, layer = LAYERS[name]
    mod, x = network(shape, layer), normal(1, *shape) + np.float32(0.5)
    call, weight, split = layer_of(mod)
    found = moments_of(mod, x)
    result = np.moveaxis(all_values(mod, x)["y"], contraction_axes(call).output, 0)
    outputs = result.reshape(len(result), -1)
    rows = split.of_weight(weight)
    np.testing.assert_allclose(
        split.sum_parts((rows * found.mean[:, :, None]).sum(axis=1)),
        outputs.mean(axis=1),
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        split.sum_parts((rows * (found.covariance(ALL) @ rows)).sum(axis=1)),
        outputs.var(axis=1),
        rtol=1e-4,
    )


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("columns", [1024, 1, 30])
def test_blocks_give_the_weight_back(monkeypatch, name, columns):
    monkeypatch.setattr(blocks, "COLUMNS", columns)
    _call, weight, split = layer_of(network(*LAYERS[name]))
    np.testing.assert_array_equal(split.to_weight(split.of_weight(weight)), weight)


@pytest.mark.parametrize("columns", [1, 20])
def test_many_inputs_are_split_into_blocks_of_the_same_moments(monkeypatch, columns):
    mod, x = network(*LAYERS["padded"]), normal(1, *LAYERS["padded"][0])
    whole = moments_of(mod, x)
    monkeypatch.setattr(blocks, "COLUMNS", columns)
    parts = moments_of(mod, x)
    size = 9 * max(columns // 9, 1)
    assert parts.covariance(ALL).shape == (36 // size, size, size)
    np.testing.assert_allclose(parts.mean.reshape(-1), whole.mean.reshape(-1), rtol=1e-5)
    np.testing.assert_allclose(
        parts.covariance(ALL)[1],
        whole.covariance(ALL)[0, size : 2 * size, size : 2 * size],
        rtol=1e-4,
    )


def test_a_batch_of_any_size_gives_what_its_samples_give():
    shape, layer = LAYERS["strided"]
    x = normal(6, *shape)
    one_by_one = moments_of(network(shape, layer), *np.split(x, 6))
    batched = moments_of(network(shape, layer, tirx.Var("n", "int64")), x[:4], x[4:])
    np.testing.assert_allclose(batched.mean, one_by_one.mean, rtol=1e-9, atol=1e-9)
    covariances = batched.covariance(ALL), one_by_one.covariance(ALL)
    np.testing.assert_allclose(*covariances, rtol=1e-9, atol=1e-9)


def test_samples_that_are_not_finite_do_not_count():
    shape, layer = LAYERS["plain"]
    x = normal(4, *shape)
    bad = np.stack([x[0], np.full_like(x[0], np.nan), *x[1:], np.full_like(x[0], np.inf)])
    mod = network(shape, layer, tirx.Var("n", "int64"))
    good, found = moments_of(mod, x), moments_of(mod, bad)
    assert found.count == good.count
    np.testing.assert_array_equal(found.covariance(ALL), good.covariance(ALL))


def test_a_loud_sample_counts_no_more_than_the_others():
    shape, layer = LAYERS["plain"]
    x = normal(4, *shape)
    loud = x * np.float32([1, 1, 1e4, 1]).reshape(-1, 1, 1, 1)
    mod = network(shape, layer, 4)
    calm, found = (moments_of(mod, data).covariance(ALL) for data in (x, loud))
    spread = [np.abs(c / np.trace(c[0])).max() for c in (calm, found)]
    assert spread[1] < 1.5 * spread[0]


def test_layers_of_symbolic_size_have_no_patches():
    width = tirx.Var("w", "int64")
    mod = network((4, 6, width), lambda x: NN.conv2d(x, const(8, 4, 3, 3)))
    assert Patches.of(layer_of(mod)[0]) is None
    rows = network((width, 5), lambda x: R.matmul(x, const(5, 6)))
    assert Patches.of(layer_of(rows)[0]) is None
