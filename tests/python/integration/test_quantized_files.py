"""Files that other tools quantized: every code of the network on integers is the one of the file.

The oracle is ONNX's reference evaluator with the operators of `qonnx_oracle.py`, or results that
came with the file.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import ModelProto, numpy_helper
from tvm import relax

from onnx_models import results
from qonnx_oracle import in_float64, oracle_results, quantizer_outputs, with_outputs
from quantized_models import float_contractions, float_weights, integer
from tvm_quant.frontend import load

RNG = np.random.default_rng(0)

#: Networks whose input is not quantized.
FLOAT_INPUTS = ("subpixel", "jettagging")

ZOO = ["TFC_1W1A", "TFC_1W2A", "TFC_2W2A", "kwsmlp_w3a3", "qkeras_jettagging"]


def inputs_of(model: ModelProto, batch: int = 1) -> dict[str, np.ndarray]:
    """Random inputs in -1..1."""
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = {
        value.name: [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in weights
    }
    return {
        name: RNG.uniform(-1, 1, [batch, *shape[1:]]).astype("float32")
        for name, shape in shapes.items()
    }


class Network:
    """A network on integers, compiled once."""

    def __init__(self, model: ModelProto, shapes=None, rounding=None):
        mod, _ = load(model, shapes=shapes, rounding=rounding)
        self.mod = integer(mod)
        self.machine = relax.VirtualMachine(tvm.compile(self.mod, "llvm"), tvm.cpu())

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        result = self.machine["main"](
            *[tvm.runtime.tensor(np.ascontiguousarray(x)) for x in inputs]
        )
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [field.numpy() for field in fields]


def steps_of(model: ModelProto, name: str) -> np.ndarray:
    """The scale of the quantizer that gives a tensor; 1 where all are whole numbers."""
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            weights[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    (node,) = [node for node in model.graph.node if name in node.output]
    return np.asarray(weights[node.input[1]] if node.op_type != "RequantShift" else 1, "float64")


def differing_codes(model: ModelProto, feeds, *, exact: bool = False) -> dict[str, int]:
    """How many codes of each quantizer are not the oracle's, in float64 if `exact`."""
    names = quantizer_outputs(model)
    tap = with_outputs(model, names)
    got = results(integer(tap), feeds)
    if exact:
        tap = in_float64(tap)
        feeds = {name: x.astype("float64") for name, x in feeds.items()}
    wanted = oracle_results(tap, feeds)
    return {
        name: int((np.abs(g - w) > 0.25 * steps_of(model, name)).sum())
        for name, g, w in zip(names, got, wanted, strict=True)
    }


def read(shared: Path, name: str) -> ModelProto:
    return onnx.load(shared / "models" / name)


def digits(shared: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    data = np.load(shared / "data" / "mnist" / "mnist_eval_2000.npz")
    images = np.asarray(data["x"], "float32").reshape(-1, 1, 28, 28)[:count]
    return images / (255 if images.max() > 1 else 1), data["y"][:count]


@pytest.mark.parametrize("name", ZOO)
def test_every_code_of_the_zoo(shared: Path, name: str):
    model = read(shared, f"qonnx_model_zoo/{name}.onnx")
    network = Network(with_outputs(model, quantizer_outputs(model)))
    for _ in range(50):
        feeds = inputs_of(model)
        names = quantizer_outputs(model)
        wanted = oracle_results(with_outputs(model, names), feeds)
        for tensor, g, w in zip(names, network(*feeds.values()), wanted, strict=True):
            assert np.abs(g - w).max() <= 1e-5, tensor


@pytest.mark.parametrize(
    "name",
    [
        *(f"qonnx_model_zoo/{name}.onnx" for name in ZOO),
        *(f"hls4ml_example_models/{n}.onnx" for n in ("bnn_model_fc_1layer", "tiny_unet_ch_last")),
        "hls4ml_example_models/branched_model_ch_last.onnx",
        "qonnx/bsd300x3-espcn/subpixel/quant_model.onnx",
        "qonnx/bsd300x3-espcn/nn_resize/quant_model.onnx",
        "finn/tfc_w1a1_finn_onnx.onnx",
        *(f"generated_onnx/resnet8_qdq_{n}.onnx" for n in ("s8s8_pertensor", "u8s8_perchannel")),
        *(f"generated_onnx/resnet8_qoperator_{n}.onnx" for n in ("s8s8_pertensor",)),
        "deeploy/mlperf_ic/network.onnx",
        "deeploy/mlperf_vww/network.onnx",
    ],
)
def test_no_weight_is_left_in_float(shared: Path, name: str):
    mod = integer(read(shared, name))
    assert not float_weights(mod)
    left = float_contractions(mod)
    assert len(left) == (1 if any(part in name for part in FLOAT_INPUTS) else 0)


@pytest.mark.parametrize(
    ("name", "accuracy"), [("TFC_1W1A", 91.7), ("TFC_1W2A", 95.2), ("TFC_2W2A", 97.0)]
)
def test_digits(shared: Path, name: str, accuracy: float):
    model = read(shared, f"qonnx_model_zoo/{name}.onnx")
    images, labels = digits(shared, 2000)
    network = Network(with_outputs(model, [*quantizer_outputs(model), model.graph.output[0].name]))
    oracle = with_outputs(model, quantizer_outputs(model))
    right = 0
    for image, label in zip(images, labels, strict=True):
        *codes, logits = network(image[None])
        right += int(logits.argmax() == label)
        if right % 20 == 0:
            feed = {model.graph.input[0].name: image[None]}
            for g, w in zip(codes, oracle_results(oracle, feed), strict=True):
                np.testing.assert_array_equal(np.sign(g) * np.rint(np.abs(g)), w)
    assert round(100 * right / len(labels), 1) == accuracy


def test_the_network_of_finn_gives_its_expected_output(shared: Path):
    folder = shared / "models" / "finn"
    network = Network(onnx.load(folder / "tfc_w1a1_finn_onnx.onnx"))
    images = np.load(folder / "tfc_w1a1_input.npy")
    got = [network(image[None])[-1].item() for image in images]
    assert got == np.load(folder / "tfc_w1a1_expected_output.npy").ravel().tolist()


def test_floating_point_quantizers_give_the_output_of_brevitas(shared: Path):
    folder = shared / "models" / "qonnx" / "floatquant_exec"
    mod, _ = load(folder / "qonnx_act_weight_fp8.onnx")
    (got,) = Network(folder / "qonnx_act_weight_fp8.onnx")(
        np.load(folder / "test_data" / "input.npy")
    )
    expected = np.load(folder / "test_data" / "output.npy")
    np.testing.assert_allclose(got, expected, rtol=0, atol=6e-8)
    assert mod["main"].attrs["tvm_quant.annotated"]


def test_a_float_network_stays_as_it_is(shared: Path):
    folder = shared / "models" / "qonnx" / "mnist-conv"
    tensors = []
    for name in ("input_0", "output_0"):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / "test_data" / f"{name}.pb").read_bytes())
        tensors.append(numpy_helper.to_array(tensor))
    mod, _ = load(folder / "model.onnx")
    feeds = {str(mod["main"].params[0].name): tensors[0]}
    np.testing.assert_allclose(results(mod, feeds)[0], tensors[1], rtol=1e-4, atol=1e-3)
    assert "tvm_quant.annotated" not in (mod["main"].attrs or {})


@pytest.mark.parametrize(
    "name",
    [
        "hls4ml_example_models/bnn_model_fc_1layer.onnx",
        "hls4ml_example_models/branched_model_ch_last.onnx",
        "hls4ml_example_models/tiny_unet_ch_last.onnx",
        "qonnx/eltwise_chanlast_testcase.onnx",
    ],
)
def test_every_code_of_one_input(shared: Path, name: str):
    model = read(shared, name)
    assert set(differing_codes(model, inputs_of(model)).values()) == {0}


def test_codes_of_super_resolution(shared: Path):
    """In float32 the oracle itself errs in a code of a million: sums lie next to boundaries."""
    model = read(shared, "qonnx/bsd300x3-espcn/nn_resize/quant_model.onnx")
    feeds = {name: np.rint(x * 255) / 255 for name, x in inputs_of(model).items()}
    assert set(differing_codes(model, feeds, exact=True).values()) == {0}


@pytest.mark.parametrize("kind", ["subpixel", "nn_resize"])
def test_every_code_of_super_resolution_on_its_own_input(shared: Path, kind: str):
    """In float64: in float32, evaluators differ where the sum of a code lies on a boundary."""
    folder = shared / "models" / "qonnx" / "bsd300x3-espcn"
    model = read(shared, f"qonnx/bsd300x3-espcn/{kind}/quant_model.onnx")
    image = onnx.TensorProto.FromString((folder / "test_data" / "input_0.pb").read_bytes())
    feeds = {model.graph.input[0].name: numpy_helper.to_array(image).astype("float32")}
    assert set(differing_codes(model, feeds, exact=True).values()) == {0}


@pytest.mark.parametrize(
    "name", ["cnn_linear1", "minimobilenet", "mlperf_ad", "mlperf_ic", "mlperf_kws", "mlperf_vww"]
)
def test_integers_of_deeploy(shared: Path, name: str):
    folder = shared / "models" / "deeploy" / name
    (x,) = np.load(folder / "inputs.npz").values()
    (expected,) = np.load(folder / "outputs.npz").values()
    (got,) = Network(folder / "network.onnx")(x.astype("float32"))
    np.testing.assert_array_equal(got, expected)


def rows_that_differ(shared: Path, name: str, kind: str, rounding: str | None = None) -> int:
    folder = shared / "models" / "generated_onnx"
    golden = np.load(folder / "golden_onnxruntime_1.32.0.npz")
    images = np.load(shared / "data" / "cifar10" / "cifar10_eval_2000.npz")["x"]
    x = images[golden["eval_index"]].transpose(0, 3, 1, 2).astype("float32")
    network = Network(folder / f"resnet8_{name}.onnx", rounding=rounding)
    got = np.concatenate([network(image[None])[0] for image in x])
    return int((got != golden[f"{name}__{kind}"]).any(axis=1).sum())


@pytest.mark.parametrize("kind", ["opt", "noopt"])
@pytest.mark.parametrize("name", ["qoperator_s8s8_pertensor", "qoperator_u8s8_perchannel"])
def test_all_rows_of_operators_on_codes_are_those_of_onnx_runtime(shared: Path, name, kind):
    assert rows_that_differ(shared, name, kind) == 0


@pytest.mark.parametrize("name", ["qdq_s8s8_pertensor", "qdq_u8s8_perchannel"])
def test_all_rows_of_quantizers_around_float_operators(shared: Path, name: str):
    assert rows_that_differ(shared, name, "noopt", rounding="onnxruntime") == 0


@pytest.mark.parametrize(("name", "most"), [("qdq_s8s8_pertensor", 2), ("qdq_u8s8_perchannel", 5)])
def test_rows_of_the_same_in_integers(shared: Path, name: str, most: int):
    """ONNX Runtime sums these convolutions in float32, which rounds next to boundaries.

    Of 8.6 million results of convolutions, 6 and 16 are not those of float64 on the same operands,
    all within 2e-5 of a boundary. Each moves codes in the layers behind.
    """
    assert rows_that_differ(shared, name, "noopt") <= most
