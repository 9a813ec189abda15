import numpy as np
import pytest

from onnx_models import assert_close, operators, results
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, io_signature, node_name, op_name

pytest.importorskip("tflite")


def test_a_float_network_agrees_with_its_onnx_twin(shared):
    """MLPerf Tiny's ResNet-8 is stored both ways, from the same weights."""
    ours, _ = load(shared / "models/mlperf_tiny/ic_resnet8_fp32.tflite")
    twin, _ = load(shared / "models/cifar10/resnet8_mlperf_tiny.onnx")
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 32, 32)).astype(np.float32)
    (info,) = io_signature(ours)
    assert info.shape == (1, 32, 32, 3)
    got = results(ours, {info.name: np.ascontiguousarray(image.transpose(0, 2, 3, 1))})
    assert_close(got, results(twin, {"data": image}), 1e-4)
    assert "call_tir" not in operators(ours)


def test_results_are_named_after_their_tensors_and_bytes_are_read(shared):
    data = (shared / "models/ai_edge_quantizer/conv_fc_mnist.tflite").read_bytes()
    mod, params = load(data)
    func = mod["main"]
    names = {
        node_name(func, b.var) for b in bindings(func) if op_name(b.value) == "relax.nn.conv2d"
    }
    assert names == {"sequential/conv2d/Relu"}
    assert params == {}


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "damaged.tflite"
    path.write_bytes(b"\x10\0\0\0TFL3" + b"\xff" * 64)
    with pytest.raises(FrontendError, match="damaged"):
        load(path)
