"""`relay.frontend`: models with the arguments of old, under the names that scripts use."""

import numpy as np
import onnx
import pytest

import tvm_relay as relay
from tvm_quant import Runner, demo
from tvm_quant.errors import FrontendError
from tvm_quant.ir import TensorInfo, io_signature

X = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype("float32")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def network(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU()).eval()


@pytest.mark.parametrize("traced", [False, True], ids=["module", "traced"])
@pytest.mark.parametrize("info", [(1, 3, 8, 8), ((1, 3, 8, 8), "float32")], ids=["shape", "dtype"])
def test_pytorch_networks_have_the_names_and_shapes_that_are_given(torch, network, traced, info):
    source = torch.jit.trace(network, torch.from_numpy(X)) if traced else network
    mod, params = relay.frontend.from_pytorch(source, [("input0", info)])
    assert params == {}
    assert io_signature(mod) == [TensorInfo(name="input0", shape=(1, 3, 8, 8), dtype="float32")]
    (got,) = Runner(mod, "llvm").run({"input0": X})
    want = network(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_another_number_of_inputs_is_refused(network):
    with pytest.raises(FrontendError, match=r"input|torch.export"):
        relay.frontend.from_pytorch(network, [("a", (1, 3, 8, 8)), ("b", (1, 3, 8, 8))])


@pytest.mark.parametrize("read", [str, onnx.load], ids=["path", "model"])
def test_onnx_networks_have_the_shapes_that_are_given(read):
    model = read(demo.model_path())
    mod, params = relay.frontend.from_onnx(model, shape={"image": (2, 1, 8, 8)}, freeze_params=True)
    assert params == {}
    assert io_signature(mod) == [TensorInfo(name="image", shape=(2, 1, 8, 8), dtype="float32")]
