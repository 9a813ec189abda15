"""`relay.frontend`: models with the arguments of old, under the names that scripts use."""

import numpy as np
import onnx
import pytest
import tvm

import mxnet_models
import onnx_models
import tvm_relay as relay
from tvm_quant import Runner, demo
from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_quant.ir import TensorInfo, io_signature
from tvm_relay.graph_executor import GraphModule

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


# What they return, quantized and built; arguments that contradict the model --------------------

RNG = np.random.default_rng(1)
KERNEL = RNG.normal(0, 0.3, (4, 3, 3, 3)).astype("float32")
WEIGHT = RNG.normal(0, 0.3, (5, 4)).astype("float32")
ROWS = RNG.normal(size=(3, 4)).astype("float32")


def onnx_model(kind="float32"):
    nodes = [
        onnx_models.node("Conv", ["x", "k"], "c", pads=[1, 1, 1, 1]),
        onnx_models.node("Relu", ["c"]),
    ]
    made = onnx_models.model(nodes, {"x": ("N", 3, 8, 8)}, {"k": KERNEL.astype(kind)}, opset=13)
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return made


@pytest.fixture
def tflite_models():
    pytest.importorskip("tflite")
    import tflite_models

    return tflite_models


def tflite_model(models, kind="float32"):
    """A dense layer; its codes have the scale 0.1 where it is quantized."""
    scale = None if kind == "float32" else 0.1
    x = models.Tensor("x", (3, 4), kind, scale)
    w = models.Tensor("w", (5, 4), kind, scale, data=WEIGHT if scale is None else WEIGHT * 10)
    y = models.Tensor("y", (3, 5), kind, scale)
    return models.one_operator("FULLY_CONNECTED", [x, w], y, "FullyConnectedOptions")


def mxnet_model(folder):
    path = folder / "net-symbol.json"
    layer = mxnet_models.node("FullyConnected", ["x", "w"], num_hidden=5, no_bias=True)
    path.write_text(mxnet_models.symbol([layer]))
    return str(path)


def through(mod, params, x):
    """Results in float and quantized, by the calls of old."""
    settings = {"skip_conv_layers": [], "skip_dense_layer": False, "weight_scale": "max"}
    with relay.quantize.qconfig(global_scale=float(np.abs(x).max()), **settings):
        quantized = relay.quantize.quantize(mod, params)
    assert "int8" in quantized.script()
    results = []
    for network in (mod, quantized):
        lib = relay.build(network, target="llvm", params=params)
        module = GraphModule(lib["default"](tvm.cpu(0)))
        module.set_input("x", x)
        module.run()
        results.append(module.get_output(0).numpy())
    return results


def near(got, wanted):
    assert got.shape == wanted.shape
    assert 0 < np.linalg.norm(got - wanted) < 0.05 * np.linalg.norm(wanted)


def test_a_network_of_onnx_is_quantized_built_and_run():
    model = onnx_model()
    given = {"x": X.shape}
    mod, params = relay.frontend.from_onnx(model, given, "float32", 13, False, {"a": True})
    in_float, quantized = through(mod, params, X)
    (wanted,) = onnx_models.results(mod, {"x": X})
    np.testing.assert_allclose(in_float, wanted, rtol=1e-4, atol=1e-5)
    near(quantized, wanted)


def test_a_network_of_tflite_is_quantized_built_and_run(tflite_models):
    import tflite

    source = tflite.Model.GetRootAsModel(tflite_model(tflite_models), 0)
    mod, params = relay.frontend.from_tflite(source, {"x": (3, 4)}, {"x": "float32"})
    in_float, quantized = through(mod, params, ROWS)
    np.testing.assert_allclose(in_float, ROWS @ WEIGHT.T, rtol=1e-4, atol=1e-5)
    near(quantized, ROWS @ WEIGHT.T)


def test_a_network_of_mxnet_is_quantized_built_and_run(tmp_path):
    source = mxnet_model(tmp_path)
    mod, params = relay.frontend.from_mxnet(source, {"x": (3, 4)}, "float32", {"w": WEIGHT}, {})
    in_float, quantized = through(mod, params, ROWS)
    np.testing.assert_allclose(in_float, ROWS @ WEIGHT.T, rtol=1e-4, atol=1e-5)
    near(quantized, ROWS @ WEIGHT.T)


def test_types_that_the_file_has_are_accepted(tflite_models):
    mod, _ = relay.frontend.from_onnx(onnx_model("float16"), dtype="float16")
    assert io_signature(mod)[0].dtype == "float16"
    mod, _ = relay.frontend.from_onnx(onnx_model("float16"), dtype={"x": np.float16})
    assert io_signature(mod)[0].dtype == "float16"
    mod, _ = relay.frontend.from_tflite(tflite_model(tflite_models, "int8"), None, {"x": "int8"})
    assert io_signature(mod)[0].dtype == "int8"


@pytest.mark.parametrize("form", ["path", "bytes", "model"])
def test_the_opset_is_that_of_the_file(form, tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_model(), path)
    source = {"path": str(path), "bytes": path.read_bytes(), "model": onnx_model()}[form]
    relay.frontend.from_onnx(source, opset=13)
    with pytest.raises(FrontendError, match=r"opset is 11; the model is of opset 13.*converter"):
        relay.frontend.from_onnx(source, opset=11)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("float16", r"dtype gives \{'x': 'float16'\}; the inputs of the network are \{'x': 'flo"),
        ({"x": "int8"}, r"dtype gives \{'x': 'int8'\}"),
        ({"data": "float32"}, r"dtype names \['data'\]; the inputs of the network are \['x'\]"),
    ],
)
def test_types_that_the_network_does_not_have_are_refused(dtype, message, tmp_path):
    with pytest.raises(FrontendError, match=message):
        relay.frontend.from_onnx(onnx_model(), dtype=dtype)
    shape, weights = {"x": (3, 4)}, {"w": WEIGHT}
    with pytest.raises(FrontendError, match=message):
        relay.frontend.from_mxnet(mxnet_model(tmp_path), shape, dtype, weights)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dtype_dict": {"x": "uint8"}}, FrontendError, r"dtype_dict gives \{'x': 'uint8'\}"),
        ({"dtype_dict": {"y": "float32"}}, FrontendError, r"dtype_dict names \['y'\]"),
        ({"shape_dict": {"y": (3, 4)}}, FrontendError, r"shape_dict names \['y'\]"),
        ({"op_converter": object}, UnsupportedError, "op_converter is <class 'object'>"),
    ],
)
def test_arguments_that_a_tflite_file_contradicts_are_refused(
    arguments, error, message, tflite_models
):
    with pytest.raises(error, match=message):
        relay.frontend.from_tflite(tflite_model(tflite_models), **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"custom_convert_map": {"aten::add": 1}}, "custom_convert_map is .*; it is not supported"),
        ({"default_dtype": "float16"}, "default_dtype is 'float16'; .* input_infos"),
        ({"export_renamed_c_graph_path": "a"}, "export_renamed_c_graph_path is 'a'"),
    ],
)
def test_arguments_of_pytorch_that_do_nothing_here_are_refused(network, arguments, message):
    with pytest.raises(UnsupportedError, match=message):
        relay.frontend.from_pytorch(network, [("a", (1, 3, 8, 8))], **arguments)


def test_short_names_of_types_are_those_of_the_old_documentation(torch):
    class Sum(torch.nn.Module):
        def forward(self, a, b):
            return a + b

    infos = [("a", ((2, 3), "int")), ("b", ((2, 3), "float"))]
    mod, _ = relay.frontend.from_pytorch(Sum(), infos, use_parser_friendly_name=True)
    assert [info.dtype for info in io_signature(mod)] == ["int32", "float32"]


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ((1, 3, 9, 9), r"x as float32 of shape \(1, 3, 9, 9\); the network takes .*\(1, 3, 8, 8\)"),
        ((3, 8, 8), r"of shape \(3, 8, 8\)"),
        (((1, 3, 8, 8), "float16"), "x as float16 of shape"),
    ],
)
def test_inputs_that_an_exported_program_does_not_have_are_refused(torch, network, info, message):
    program = torch.export.export(network, (torch.from_numpy(X),))
    with pytest.raises(FrontendError, match=message):
        relay.frontend.from_pytorch(program, [("x", info)])
