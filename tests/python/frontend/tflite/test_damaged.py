"""Files that are cut, changed or wrong: an error that says so, and soon."""

import contextlib

import numpy as np
import pytest

from tvm_quant.errors import FrontendError, TvmQuantError
from tvm_quant.frontend import load

pytest.importorskip("tflite")

from tflite_models import Operator, Tensor, one_operator, tflite_bytes


@pytest.fixture(scope="module")
def model() -> bytes:
    x = Tensor("x", (1, 4, 4, 2), scale=0.5, zero_point=3)
    w = Tensor("w", (3, 2, 2, 2), scale=[0.1, 0.2, 0.3], data=np.arange(24))
    b = Tensor("b", (3,), "int32", [0.05, 0.1, 0.15], data=[1, 2, 3])
    y = Tensor("y", (1, 2, 2, 3), scale=1.0)
    return one_operator(
        "CONV_2D", [x, w, b], y, "Conv2DOptions", StrideH=2, StrideW=2, FusedActivationFunction=1
    )


def read(data: bytes) -> None:
    """Reading ends in a module or in an error of ours."""
    with contextlib.suppress(TvmQuantError):
        load(data)


def test_a_file_that_is_cut_anywhere(model):
    for length in range(8, len(model), 13):
        read(model[:length])


def test_a_file_with_changed_bytes(model):
    rng = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(model)
        for place in rng.integers(8, len(model), rng.integers(1, 4)):
            damaged[place] = rng.integers(0, 256)
        read(bytes(damaged))


def network(inputs=("x",), outputs=("y",), reads=("x",), **changes) -> bytes:
    tensors = [
        Tensor("x", changes.get("shape", (4,)), scale=1.0),
        Tensor("c", (4,), scale=1.0, data=changes.get("data", [1, 2, 3, 4])),
        Tensor("y", (4,), scale=1.0),
    ]
    operators = [Operator("ADD", [*reads, "c"], ["y"], "AddOptions")]
    return tflite_bytes(tensors, operators, inputs, outputs)


def test_the_network_of_these_tests_is_read():
    assert load(network())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": ()}, r"operator 0 reads tensor 'x', which nothing computes before it"),
        ({"data": [1, 2, 3]}, r"tensor 'c' of shape \(4,\) has 3 bytes; expected 4"),
        ({"shape": (4, -3)}, r"tensor 'x' has the shape \(4, -3\)"),
        ({"shape": (1 << 30, 1 << 30)}, r"tensor 'x' has the shape"),
    ],
)
def test_what_contradicts_itself_is_named(changes, message):
    with pytest.raises(FrontendError, match=f"TFLite model is damaged: {message}"):
        load(network(**changes))


@pytest.mark.parametrize("number", [3, 99, -2])
def test_an_index_beyond_the_tensors_is_named(number):
    data = network()
    vector = np.array([2, 0, 1], "<i4").tobytes()  # the length of the inputs, and they
    assert data.count(vector) == 1
    damaged = data.replace(vector, np.array([2, number, 1], "<i4").tobytes())
    with pytest.raises(FrontendError, match=f"an input of operator 0 is number {number}, of 3"):
        load(damaged)


def test_two_tensors_of_one_name_are_refused():
    names = ("first_name", "other_name")
    tensors = [Tensor(name, (4,), scale=1.0) for name in names]
    data = tflite_bytes(tensors, [Operator("RELU", names[:1], names[1:])], names[:1], names[1:])
    with pytest.raises(FrontendError, match="Two quantized tensors are named 'first_name'"):
        load(data.replace(b"other_name", b"first_name"))
