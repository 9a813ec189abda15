"""`relay.testing`: networks with the parameters that the old stack gave them, which run."""

import importlib
import zlib

import numpy as np
import pytest
import tvm

import tvm_relay as relay
from plain_tvm import run
from tvm_quant.errors import FrontendError
from tvm_quant.ir import io_signature
from tvm_relay import testing
from tvm_relay.graph_executor import GraphModule
from tvm_relay.testing import mlp, mobilenet, resnet, squeezenet, vgg
from tvm_relay.testing.resnet import stages

TINY = {"num_classes": 10, "image_shape": (3, 28, 28)}
SMALL = {"num_classes": 10, "image_shape": (3, 32, 32)}
#: Name: what makes a workload, and `checksum` of what the same call makes in TVM 0.16 with Relay
#: (the wheel hhb-tvm 3.2.3).
WORKLOADS = {
    "mlp": (lambda: mlp.get_workload(1), 3118689001),
    "resnet 8": (lambda: resnet.get_workload(num_layers=8, **TINY), 1210921538),
    "resnet 18": (
        lambda: resnet.get_workload(num_layers=18, image_shape=(3, 32, 32)),
        1487967612,
    ),
    "resnet 50 NHWC": (
        lambda: resnet.get_workload(1, 10, 50, image_shape=(64, 64, 3), layout="NHWC"),
        1324997691,
    ),
    "resnet 164": (lambda: resnet.get_workload(num_layers=164, **TINY), 1488472196),
    "mobilenet": (lambda: mobilenet.get_workload(num_classes=10), 199706280),
    "mobilenet, narrow": (
        lambda: testing.create_workload(
            mobilenet.mobile_net(10, (1, 3, 32, 32), alpha=0.25, is_shallow=True)
        ),
        2166875800,
    ),
    "squeezenet 1.0": (lambda: squeezenet.get_workload(num_classes=10), 1612889626),
    "squeezenet 1.1": (
        lambda: squeezenet.get_workload(num_classes=10, version="1.1"),
        2114689043,
    ),
    "vgg 16": (lambda: vgg.get_workload(1, num_layers=16, batch_norm=True, **SMALL), 4271040141),
    "constant": (
        lambda: testing.create_workload(mlp.get_net(1), testing.init.Constant(), seed=3),
        1727907392,
    ),
    "Xavier by inputs": (
        lambda: testing.create_workload(
            mlp.get_net(1), testing.init.Xavier(factor_type="in", magnitude=2), seed=3
        ),
        1033352255,
    ),
}


def checksum(params):
    """Of names, shapes and bytes, in order."""
    crc = 0
    for name, value in params.items():
        crc = zlib.crc32(f"{name}{tuple(value.shape)}".encode(), crc)
        crc = zlib.crc32(value.numpy().tobytes(), crc)
    return crc


@pytest.mark.parametrize(("make", "old"), WORKLOADS.values(), ids=WORKLOADS)
def test_parameters_have_the_names_shapes_and_bits_of_old(make, old):
    assert checksum(make()[1]) == old


def test_what_a_script_draws_afterwards_is_what_it_drew_then():
    mlp.get_workload(1)
    first = np.random.rand(3)  # noqa: NPY002
    mlp.get_workload(1)
    np.testing.assert_array_equal(np.random.rand(3), first)  # noqa: NPY002


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (lambda: mlp.get_net(2, image_shape=(1, 4, 4)), (2, 1, 4, 4)),
        (lambda: resnet.get_net(2, 10, 20, image_shape=(3, 32, 32)), (2, 3, 32, 32)),
        (lambda: resnet.get_net(2, 10, 50, image_shape=(3, 64, 64)), (2, 3, 64, 64)),
        (lambda: mobilenet.mobile_net(10, (2, 64, 64, 3), layout="NHWC"), (2, 64, 64, 3)),
        (lambda: squeezenet.get_net(2, (3, 64, 64), 10, "1.1", "float32"), (2, 3, 64, 64)),
        (lambda: vgg.get_net(2, (3, 32, 32), 10, "float32", 19), (2, 3, 32, 32)),
    ],
    ids=["mlp", "cifar", "bottleneck", "nhwc", "squeezenet", "vgg"],
)
def test_images_become_probabilities_of_classes(net, shape):
    mod = relay.to_relax(net())
    assert (io_signature(mod)[0].name, io_signature(mod)[0].shape) == ("data", shape)
    assert [int(dim) for dim in mod["main"].ret_ty.shape.values] == [2, 10]


def test_parameters_have_the_type_of_the_data():
    _, params = mlp.get_workload(1, dtype="float16")
    assert {str(value.dtype) for value in params.values()} == {"float16"}


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_the_depth_counts_layers_with_weights(depth):
    plan = stages(depth, rows=224)
    assert sum(plan.units) * (3 if plan.bottleneck else 2) + 2 == depth
    assert len(plan.units) == 4


@pytest.mark.parametrize("depth", [8, 20, 32, 44, 56, 110, 164, 1001])
def test_the_depth_counts_layers_of_networks_for_small_images(depth):
    plan = stages(depth, rows=32)
    assert sum(plan.units) * (3 if plan.bottleneck else 2) + 2 == depth
    assert len(plan.units) == 3


def test_a_perceptron_computes_what_numpy_does():
    mod, params = mlp.get_workload(2, num_classes=3, image_shape=(1, 4, 4))
    image = np.random.default_rng(0).normal(size=(2, 1, 4, 4)).astype("float32")
    w = {name: value.numpy() for name, value in params.items()}
    hidden = image.reshape(2, -1)
    for layer in ("fc1", "fc2"):
        hidden = np.maximum(hidden @ w[f"{layer}_weight"].T + w[f"{layer}_bias"], 0)
    scores = np.exp(hidden @ w["fc3_weight"].T + w["fc3_bias"])
    (got,) = run(relay.to_relax(mod), image, *w.values())
    np.testing.assert_allclose(got, scores / scores.sum(1, keepdims=True), rtol=1e-5)


def test_a_residual_network_is_quantized_built_and_run():
    mod, params = resnet.get_workload(num_layers=8, num_classes=4, image_shape=(3, 16, 16))
    images = np.random.default_rng(0).uniform(-1, 1, (4, 1, 3, 16, 16)).astype("float32")
    with relay.quantize.qconfig(calibrate_mode="percentile", weight_scale="max"):
        dataset = [{"data": image} for image in images]
        quantized = relay.quantize.quantize(mod, params, dataset)
    assert "int8" in quantized.script()
    got, wanted = (np.log(computed(m, params, images[0])) for m in (quantized, mod))
    spread = np.abs(wanted - wanted.mean()).max()
    assert 0 < np.abs(got - wanted).max() < 0.1 * spread


def computed(mod, params, image):
    lib = relay.build(mod, target="llvm", params=params)
    module = GraphModule(lib["default"](tvm.cpu()))
    module.run(data=image)
    return module.get_output(0).numpy()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: resnet.get_workload(num_layers=20), "No residual network has 20 layers for"),
        (lambda: resnet.get_workload(num_layers=21, **TINY), r"up to 32 rows 6 n \+ 2"),
        (lambda: resnet.get_workload(layout="CHWN"), "The layout is 'CHWN'; expected one of"),
        (lambda: vgg.get_workload(1, num_layers=12), "num_layers is 12; expected one of"),
        (lambda: squeezenet.get_workload(version="2"), r"version is '2'; expected one of \['1.0'"),
        (lambda: testing.init.Xavier(rnd_type="normal"), r"Xavier\(rnd_type='normal'"),
        (lambda: testing.init.Xavier(factor_type="all"), "one of 'in', 'out', 'avg'"),
    ],
)
def test_what_no_network_has_is_refused(make, message):
    with pytest.raises(FrontendError, match=message):
        make()


@pytest.mark.parametrize(
    ("names", "shape", "message"),
    [
        (("data", "w"), (2, 3), "No initial value for the parameter 'w'"),
        (("x", "weight"), (2, 3), "if it is the input, call it 'data'"),
        (("data", "weight"), (3,), r"'weight' has shape \(3,\)"),
        (("data", "weight"), (relay.Any(), 3), "'weight' has the shape .* open dimensions"),
    ],
)
def test_parameters_that_say_too_little_are_refused(names, shape, message):
    left, right = (relay.var(name, shape=shape) for name in names)
    with pytest.raises(FrontendError, match=message):
        testing.create_workload(left + right)


def test_an_initializer_of_ones_own_says_what_weights_are():
    class Count(testing.init.Initializer):
        def _init_weight(self, _name, arr):
            arr[:] = np.arange(arr.size).reshape(arr.shape)

    _, params = testing.create_workload(mlp.get_net(1, 2, (1, 1, 3)), Count())
    np.testing.assert_array_equal(params["fc1_weight"].numpy()[:2], [[0, 1, 2], [3, 4, 5]])
    assert not params["fc1_bias"].numpy().any()


def test_every_network_of_the_table_has_a_workload():
    for name, network in testing.NETWORKS.items():
        assert network is importlib.import_module(f"tvm_relay.testing.{name}")
        assert callable(network.get_workload)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("densenet", "relay.testing.densenet is gone: .* relay.frontend.from_onnx"),
        ("run_opt_pass", "relay.testing.run_opt_pass is gone: apply the pass itself"),
        ("nothing", "relay.testing has no 'nothing'; it has"),
    ],
)
def test_what_is_not_there_says_what_to_write(name, message):
    with pytest.raises(AttributeError, match=message):
        getattr(testing, name)
