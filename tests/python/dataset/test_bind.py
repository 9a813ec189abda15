"""Which tensor of a batch goes to which input."""

import numpy as np
import pytest

from tvm_quant.dataset.bind import bind
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo

X = TensorInfo(name="x", shape=(None, 3), dtype="float32")
IDS = TensorInfo(name="input_ids", shape=(None, 4), dtype="int64")
A, B, Y = np.zeros((2, 3), np.float32), np.zeros((2, 4), np.int64), np.array([0, 1])


class MXNetArray:
    def __init__(self, array):
        self.array = array

    def asnumpy(self):
        return self.array


class Tensor:
    """As much of a torch tensor as is used."""

    def __init__(self, array, dtype="torch.float32"):
        self.array, self.dtype = array, dtype

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.array.astype(np.float32))

    def numpy(self):
        assert self.dtype != "torch.bfloat16"
        return self.array


class DataBatch:
    def __init__(self, data, label=None, pad=0, provide_data=None):
        self.data, self.label, self.pad, self.provide_data = data, label, pad, provide_data


@pytest.mark.parametrize(
    "item",
    [
        A,
        A.tolist(),
        {"x": A},
        (A,),
        [A],
        MXNetArray(A),
        Tensor(A),
        Tensor(A, "torch.bfloat16"),
        DataBatch([MXNetArray(A)]),
    ],
    ids=lambda item: type(item).__name__,
)
def test_every_form_of_a_batch_binds_to_the_only_input(item):
    raw = bind(item, [X], "batch 0")
    np.testing.assert_array_equal(raw.arrays["x"], A)
    assert raw.labels is None


@pytest.mark.parametrize(
    "item",
    [
        (A, Y),
        ([A], Y),
        ({"x": A}, Y),
        {"x": A, "label": Y},
        {"x": A, "labels": Y},
        {"x": A, "y": Y},
        DataBatch([A], [Y]),
    ],
    ids=["pair", "nested", "mapping_pair", "label", "labels", "y", "mxnet"],
)
def test_labels_are_found_beside_the_inputs(item):
    raw = bind(item, [X], "batch 0")
    np.testing.assert_array_equal(raw.arrays["x"], A)
    np.testing.assert_array_equal(raw.labels, Y)


@pytest.mark.parametrize("item", [(A, B), {"input_ids": B, "x": A}, {"input.ids": B, "x": A}])
def test_two_inputs_bind_by_position_or_by_name(item):
    raw = bind(item, [X, IDS], "batch 0")
    np.testing.assert_array_equal(raw.arrays["x"], A)
    np.testing.assert_array_equal(raw.arrays["input_ids"], B)


def test_padding_rows_of_an_mxnet_batch_are_cut():
    raw = bind(DataBatch([A], [Y], pad=1), [X], "batch 0")
    assert raw.arrays["x"].shape == (1, 3)
    assert raw.labels.tolist() == [0]


def test_an_mxnet_batch_binds_by_the_names_it_provides():
    batch = DataBatch([B, A], provide_data=[("input_ids", (2, 4)), ("x", (2, 3))])
    assert bind(batch, [X, IDS], "batch 0").arrays["x"].shape == (2, 3)


def test_a_real_torch_tensor_binds():
    torch = pytest.importorskip("torch")
    raw = bind(torch.ones(2, 3, requires_grad=True), [X], "batch 0")
    np.testing.assert_array_equal(raw.arrays["x"], np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    ("item", "signature", "message"),
    [
        (
            {"inputs": A},
            [X],
            "batch 3: nothing for input 'x' (?, 3) float32 and unknown name 'inputs'",
        ),
        (
            {"input_idx": B, "x": A},
            [X, IDS],
            (
                "nothing for input 'input_ids' (?, 4) int64 and unknown name 'input_idx'. "
                "Did you mean 'input_ids' for 'input_idx'?"
            ),
        ),
        ({"x": A}, [X, IDS], "batch 3: nothing for input 'input_ids' (?, 4) int64"),
        ({"x": A, "mask": A, "z": A}, [X], "unknown names 'mask', 'z'. The model has input 'x'"),
        (A, [X, IDS], "holds 1 tensor, but the model has 2 inputs: inputs 'x'"),
        ((A, A, A), [X], "holds 3 tensors, but the model has 1 inputs: input 'x' (?, 3) float32"),
        ("cat.jpg", [X], "batch 3 is a str; expected tensors for input 'x'"),
        (None, [X], "batch 3 is a NoneType; expected tensors for input 'x'"),
        (object(), [X], "batch 3 is a object; expected a tensor, a tuple or a mapping"),
    ],
)
def test_a_batch_that_does_not_match_the_inputs_is_refused(item, signature, message):
    with pytest.raises(DatasetError) as caught:
        bind(item, signature, "batch 3")
    assert message in str(caught.value)
