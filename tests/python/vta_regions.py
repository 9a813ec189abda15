"""Random regions for tests of the VTA backend."""

from __future__ import annotations

import numpy as np

from tvm_quant.backend.vta import Add, Convolution, Dense, MaxPool, Region, Residual, Tensor


def int8(random, *shape):
    return random.integers(-128, 128, shape).astype(np.int8)


def convolution(
    random, *, shape, outputs, kernel=3, stride=1, pad=1, groups=1, residual=None, shift=8, **more
):
    """A region of one convolution; `residual` is a left shift, or one per channel."""
    batch, channels, height, width = shape
    layer = Convolution(
        name="conv",
        data="x",
        output="y",
        weight=int8(random, outputs, channels // groups, kernel, kernel),
        bias=random.integers(-5000, 5000, outputs).astype(np.int32),
        shift=shift,
        strides=(stride, stride),
        padding=(pad,) * 4,
        groups=groups,
        residual=None if residual is None else Residual(tensor="r", shift=residual),
        **more,
    )
    x = Tensor(name="x", shape=shape)
    y = Tensor(
        name="y",
        shape=(
            batch,
            outputs,
            *((each + 2 * pad - kernel) // stride + 1 for each in (height, width)),
        ),
    )
    extra = () if residual is None else (Tensor(name="r", shape=y.shape),)
    return Region(
        name="test",
        tensors=(x, y, *extra),
        layers=(layer,),
        inputs=("x", *(each.name for each in extra)),
        outputs=("y",),
    )


def block(random, channels=20, size=9):
    """Two convolutions, a residual, a sum, a pool and a matrix product, in one region."""
    shape, pooled = (1, channels, size, size), (size - 1) // 2 + 1
    shapes = {"x": shape, "a": shape, "b": shape, "c": shape, "p": (1, channels, pooled, pooled)}
    shapes |= {"s": (1, 12, 1, 1), "d": (1, 10)}

    def layer(name, data, output, outputs=channels, kernel=3, pad=1, **more):
        return Convolution(
            name=name,
            data=data,
            output=output,
            weight=int8(random, outputs, channels, kernel, kernel),
            bias=random.integers(-5000, 5000, outputs).astype(np.int32),
            padding=(pad,) * 4,
            **more,
        )

    layers = (
        layer("first", "x", "a", shift=11, low=0),
        layer(
            "second",
            "a",
            "b",
            shift=random.integers(9, 13, channels),
            residual=Residual(tensor="x", shift=7),
        ),
        Add(name="sum", lhs="a", rhs="b", lhs_shift=1, output="c", shift=1),
        MaxPool(name="pool", data="c", output="p", window=(3, 3), strides=(2, 2), padding=(1,) * 4),
        layer("last", "p", "s", outputs=12, kernel=pooled, pad=0, shift=12),
        Dense(name="dense", data="s", output="d", weight=int8(random, 10, 12), shift=8),
    )
    return Region(
        name="block",
        tensors=tuple(Tensor(name=name, shape=each) for name, each in shapes.items()),
        layers=layers,
        inputs=("x",),
        outputs=("d", "c"),
    )


def inputs(random, region, value=None):
    """An int8 array for each input: random, or `value` everywhere."""
    shapes = [region.by_name[name].shape for name in region.inputs]
    if value is not None:
        return [np.full(shape, value, np.int8) for shape in shapes]
    return [int8(random, *shape) for shape in shapes]
