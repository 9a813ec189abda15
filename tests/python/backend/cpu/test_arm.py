"""Kernels for Arm, run under QEMU."""

import numpy as np
import pytest
from tvm import relax
from tvm.target import Target

import backend_networks as networks
import plain_tvm
from emulated_arm import EmulatedArm, missing
from tvm_quant import QuantizeConfig, demo, frontend, quantize
from tvm_quant.backend.cpu.check import LAYERS, layer_example
from tvm_quant.ir import constant

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

TARGETS = {name: Target(target) for name, target, _ in networks.ISA_TARGETS if "neon" in name}
#: QEMU's CPU for each row: the first two lack what the next row has.
CPUS = {"neon": "cortex-a72", "neon_dotprod": "cortex-a76", "neon_i8mm": "max"}
DOTS = {"sdot", "udot", "usdot"}
PROMISED = {
    ("neon_i8mm", "uint8"): {"usdot"},
    ("neon_i8mm", "int8"): {"sdot"},
    ("neon_dotprod", "uint8"): {"sdot"},
    ("neon_dotprod", "int8"): {"sdot"},
}

on_every_row = pytest.mark.parametrize("row", TARGETS)


@pytest.fixture
def emulated(tmp_path):
    def make(mod, row, cpu=None):
        return EmulatedArm(mod, TARGETS[row], cpu or CPUS[row], tmp_path)

    return make


def layers_of(row):
    """Float kernels are the same on all rows; none has kernels for small weights."""
    return [
        layer
        for layer in LAYERS
        if (row == "neon" or layer.dtype != "float32") and layer.reach == 128
    ]


@pytest.mark.parametrize(
    ("row", "layer"),
    [
        pytest.param(row, layer, id=f"{row}-{layer.name}-{layer.dtype}")
        for row in TARGETS
        for layer in layers_of(row)
    ],
)
def test_layers_equal_numpy_with_the_instructions_of_the_row(emulated, row, layer):
    example = layer_example(layer)
    module = emulated(example.mod, row)
    depthwise = layer.groups == layer.inputs
    promised = set() if depthwise else PROMISED.get((row, layer.dtype), set())
    assert module.instructions & DOTS == promised
    (result,) = module.run(example.data)
    assert example.differing(result) == 0


@on_every_row
@pytest.mark.parametrize(
    ("shape", "weight", "attrs"),
    [
        ((2, 5, 9, 7), (10, 5, 3, 2), {"padding": 1, "strides": 2}),
        ((1, 12, 11, 6), (24, 6, 2, 3), {"padding": 2, "dilation": 2, "groups": 2}),
    ],
    ids=["five-channels", "two-groups"],
)
def test_sizes_that_fill_no_vector_equal_the_plain_build(emulated, row, shape, weight, attrs):
    mod = networks.integer_conv(shape, weight, **attrs)
    (result,) = emulated(mod, row).run(networks.codes(shape))
    np.testing.assert_array_equal(result, plain_tvm.run_one(mod, networks.codes(shape)))


@on_every_row
@pytest.mark.parametrize("value", [255, -128])
def test_the_largest_sums_do_not_saturate(emulated, row, value):
    dtype, weight = "uint8" if value > 0 else "int8", np.full((64, 8), -128, "int8")

    def body(_builder, x):
        return relax.op.matmul(x, constant(weight), out_dtype="int32")

    mod = plain_tvm.build(body, x=(dtype, 2, 64))
    (total,) = emulated(mod, row).run(np.full((2, 64), value, dtype))
    np.testing.assert_array_equal(total, np.full((2, 8), -128 * value * 64))


def test_a_whole_network_equals_the_plain_build(emulated):
    float32, params = frontend.load(demo.model_path())
    config = QuantizeConfig(hardware="arm_dot")
    mod = quantize(float32, params, demo.calibration_data()[:16], config)
    images = demo.evaluation_data()[0][:4]
    module = emulated(mod, "neon_dotprod")
    assert "sdot" in module.instructions
    (logits,) = module.run(images)
    np.testing.assert_array_equal(logits, plain_tvm.run_one(mod, images))


def test_an_instruction_that_the_cpu_lacks_is_not_emulated(emulated):
    example = layer_example(LAYERS[0])
    with pytest.raises(RuntimeError, match="SIGILL"):
        emulated(example.mod, "neon_dotprod", cpu=CPUS["neon"]).run(example.data)
