"""What users of the old stack reported, on networks as small as show it."""

import gc
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir.instrument import pass_instrument

import plain_tvm
import tvm_relay as relay
from tvm_quant.backend.cpu import cpu_pipeline
from tvm_quant.backend.cpu.channels_last import ChannelsLast
from tvm_quant.backend.cpu.fold import FoldCheapConstants
from tvm_quant.errors import BackendError
from tvm_quant.ir import bindings, op_name
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.op import is_requantize, is_simulated
from tvm_relay_networks import (
    Net,
    data,
    error,
    layers,
    operators,
    outputs,
    quantized,
    relative,
    samples,
)

SOUND = 0.06


def image(name: str = "x") -> relay.Var:
    return data(1, 4, 8, 8, name=name)


def requantizes(mod: tvm.IRModule) -> int:
    return sum(is_requantize(binding.value) for binding in bindings(mod["main"]))


def test_a_scaled_pool_beside_a_tensor_in_float_is_quantized():
    net = Net()
    pooled = relay.nn.max_pool2d(net.conv(image(), 4, 4), (2, 2), (2, 2))
    scale = relay.const(np.linspace(0.5, 2, 4).reshape(4, 1, 1).astype("float32"))
    joined = relay.concatenate([net.conv(pooled * scale, 4, 4), data(1, 4, 4, 4, name="z")], 1)
    y = net.conv(joined, 8, 4)
    assert layers(quantized(y)) == ["nn.conv2d"] * 3
    assert error(y) < SOUND


def test_a_tensor_with_two_readers_has_one_quantizer():
    net, x = Net(), image()
    mod = quantized(net.conv(x, 4, 4, k=1) + net.conv(x, 4, 4, k=1), do_simulation=True)
    read = [b.value.args[0] for b in bindings(mod["main"]) if is_simulated(b.value)]
    assert sum(arg.same_as(mod["main"].params[0]) for arg in read) == 1


@pytest.mark.parametrize("mode", ["global_scale", "kl_divergence"])
def test_a_pool_between_layers_keeps_the_scale_it_gets(mode):
    net = Net()
    pooled = relay.nn.max_pool2d(net.conv(image(), 4, 4), (2, 2), (2, 2))
    mod = quantized(net.conv(pooled, 4, 4), mode)
    assert requantizes(mod) == 1
    assert operators(mod, "int8")[-1] == "nn.max_pool2d"


@pytest.mark.parametrize("weight_scale", ["max", "power2"])
def test_between_two_layers_there_is_one_requantize_and_nothing_in_float(weight_scale):
    net = Net()
    y = net.conv(relay.nn.relu(net.conv(image(), 4, 4)), 4, 4)
    mod = quantized(y, weight_scale=weight_scale, partition_conversions="fully_integral")
    main = tvm.IRModule({"main": mod["quantized_main"]})
    assert requantizes(main) == 1
    assert operators(main, "float32") == []
    assert error(y, weight_scale=weight_scale) < SOUND


def test_a_residual_sum_between_layers_is_an_integer_one():
    net = Net()
    y = relay.nn.relu(net.conv(image(), 4, 4))
    y = net.conv(relay.nn.relu(net.conv(y, 4, 4) + y), 4, 4)
    mod = quantized(y, partition_conversions="fully_integral")
    assert operators(tvm.IRModule({"main": mod["quantized_main"]}), "float32") == []
    assert error(y) < SOUND


def test_a_convolution_and_what_normalizes_it_end_in_one_requantize():
    net = Net()
    statistics = [relay.const((net.rng.rand(4) + 0.5).astype("float32")) for _ in range(4)]
    block = relay.nn.relu(relay.nn.batch_norm(net.conv(image(), 4, 4), *statistics)[0])
    mod = quantized(net.conv(block, 4, 4))
    assert requantizes(mod) == 1
    assert operators(mod, "int8")[-1] == "tvm_quant.requantize"


def test_integers_pass_from_a_pool_through_a_flattening_to_a_dense_layer():
    net = Net()
    pooled = relay.nn.max_pool2d(relay.nn.relu(net.conv(image(), 4, 4)), (2, 2), (2, 2))
    y = relay.nn.dense(relay.nn.batch_flatten(pooled), net.weight(3, 64))
    mod = quantized(y, skip_dense_layer=False)
    assert operators(mod, "int8")[-2:] == ["nn.max_pool2d", "reshape"]
    assert layers(mod) == ["nn.conv2d", "matmul"]


def test_a_gate_on_the_left_of_what_it_gates_is_quantized():
    net = Net()
    y = net.conv(image(), 4, 4)
    y = net.conv(relay.sigmoid(y) * y, 4, 4)
    mod = quantized(y, partition_conversions="fully_integral")
    assert operators(tvm.IRModule({"main": mod["quantized_main"]}), "float32") == []
    assert error(y) < SOUND


def test_attention_is_made_of_integer_products():
    net, x = Net(), data(16, 32)

    def heads() -> relay.Call:
        flat = relay.nn.dense(x, net.weight(32, 32))
        return relay.transpose(relay.reshape(flat, (16, 4, 8)), (1, 0, 2))

    scores = relay.nn.softmax(relay.nn.batch_matmul(heads(), heads()) * 8**-0.5)
    mixed = relay.nn.batch_matmul(scores, relay.transpose(heads(), (0, 2, 1)))
    y = relay.reshape(relay.transpose(mixed, (1, 0, 2)), (16, 32))
    y = relay.nn.dense(y, net.weight(32, 32)) + x
    options = {"mode": "percentile", "skip_dense_layer": False}
    assert layers(quantized(y, **options)) == ["matmul"] * 6
    assert error(y, **options) < SOUND


def test_functions_that_main_does_not_call_stay_as_they_are():
    mod = relay.to_relax(Net().conv(image(), 4, 4))
    other = relay.to_relax(relay.nn.relu(data(1, 2)))["main"].with_attr("global_symbol", "other")
    mod["other"] = other
    with relay.quantize.qconfig(skip_conv_layers=[]):
        result = relay.quantize.quantize(mod)
    assert layers(result) == ["nn.conv2d"]
    tvm.ir.assert_structural_equal(result["other"], other)


def test_what_a_called_function_computes_is_quantized():
    a = image("a")
    bias = relay.const(np.ones(4, "float32"))
    block = relay.Function([a], relay.nn.bias_add(Net().conv(a, 4, 4), bias))
    assert layers(quantized(relay.Call(block, [image()]))) == ["nn.conv2d"]


@pytest.mark.parametrize("attribute", ["Composite", "Compiler"])
def test_a_function_that_was_marked_for_another_compiler_is_quantized_too(attribute):
    net, a, bias = Net(), image("a"), relay.const(np.ones(4, "float32"))
    block = relay.Function([a], relay.nn.bias_add(net.conv(a, 4, 4), bias))
    block = block.with_attr(attribute, "dnnl.conv2d_bias")
    y = net.conv(relay.nn.relu(relay.Call(block, [image()])), 4, 4)
    assert layers(quantized(y)) == ["nn.conv2d"] * 2
    assert error(y) < SOUND


def test_types_can_be_inferred_again_with_quantizers_in_place():
    mod = relay.quantize.prerequisite_optimize(relay.to_relax(Net().conv(image(), 4, 4)))
    with relay.quantize.qconfig(skip_conv_layers=[]):
        mod = relay.quantize.annotate()(mod)
    assert any(is_simulated(binding.value) for binding in bindings(mod["main"]))
    again = tvm.transform.Sequential([relay.transform.InferType()] * 2)(mod)
    tvm.ir.assert_structural_equal(again, mod)


def test_a_convolution_that_is_skipped_says_why():
    net = Net()
    y = relay.nn.relu(net.conv(data(1, 3, 16, 16), 3, 8, k=7, strides=(2, 2)))
    y = relay.nn.relu(net.conv(relay.nn.max_pool2d(y, (2, 2), (2, 2)), 8, 8))
    mod = relay.quantize.quantize(relay.to_relax(relay.nn.adaptive_avg_pool2d(y, (1, 1))))
    assert (layers(mod), layers(mod, "float32")) == (["nn.conv2d"], ["nn.conv2d"])
    skipped = next(b.var for b in bindings(mod["main"]) if op_name(b.value) == "relax.nn.conv2d")
    assert float_reasons(mod["main"])[str(skipped.name)] == "left in float by skip_conv_layers"


@pytest.mark.parametrize("level", [0, 3])
def test_channels_that_fill_no_vector_are_quantized_at_every_level(level):
    net = Net()
    mod = quantized(net.conv(relay.nn.relu(net.conv(data(1, 3, 9, 7), 3, 126)), 126, 1))
    assert layers(mod) == ["nn.conv2d"] * 2
    feed = samples(mod, 1)[0]
    with tvm.transform.PassContext(opt_level=level):
        (got,) = outputs(mod, feed)
    np.testing.assert_array_equal(got, plain_tvm.run(mod, feed["x"])[0])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_each_operand_of_a_product_of_batches_has_a_type_of_its_own(dtype):
    product = relay.nn.batch_matmul(data(1, 32, 64), data(4, 16, 64, name="y"))
    mod = quantized(product, "percentile", dtype_input=dtype)
    codes = {
        str(b.value.args[0].name): str(b.var.ty.dtype)
        for b in bindings(mod["main"])
        if op_name(b.value) == "relax.astype" and str(b.var.ty.dtype) in ("int8", "uint8")
    }
    assert sorted(codes.values()) == sorted([dtype, "int8"])
    assert layers(mod) == ["matmul"]
    assert error(product, mode="percentile", dtype_input=dtype) < SOUND


def residual() -> relay.Call:
    """Two convolutions, one with a path around it, and a third one."""
    net = Net()
    y = relay.nn.relu(net.conv(data(1, 4, 16, 16), 4, 16))
    return net.conv(relay.nn.relu(net.conv(y, 16, 16) + y), 16, 16)


def lowered(mod: tvm.IRModule, target: dict[str, str]) -> tvm.IRModule:
    target = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", **target}
    return cpu_pipeline(tvm.target.Target(target))(mod)


ARM = {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}
TARGETS = [{"mcpu": "cascadelake"}, {"mcpu": "haswell"}, ARM]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["mcpu"])
def test_images_between_layers_are_bytes_and_no_kernel_only_casts_them(target):
    images = Counter(
        "+".join(sorted(str(p.dtype) for p in func.params if list(p.shape)[1:3] == [16, 16]))
        for func in lowered(quantized(residual()), target).functions.values()
        if isinstance(func, tirx.PrimFunc)
    )
    ends = {"int8": 1, "float32+int8": 1, "float32+float32": 1}  # the last is a transpose
    assert images == {"int8+int8": 2, **ends}


@pytest.mark.parametrize("kernel", ["OHWI", "HWIO"])
@pytest.mark.parametrize("position", [0, 2, 4], ids=["float", "annotated", "integers"])
def test_layouts_are_converted_through_quantizers(position, kernel):
    mod = relay.to_relax(residual())
    stages = [
        relay.quantize.prerequisite_optimize,
        relay.quantize.annotate(),
        relay.quantize.calibrate(samples(mod)),
        relay.quantize.realize(),
    ]
    stages.insert(position, relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", kernel]}))
    converted = mod
    with relay.quantize.qconfig(calibrate_mode="percentile", skip_conv_layers=[]):
        for stage in stages:
            converted = stage(converted)
    assert layers(converted) == ["nn.conv2d"] * 3
    calls = [op_name(b.value) for b in bindings(lowered_layouts(converted)["main"])]
    assert calls.count("relax.permute_dims") == 2  # of the input and of the result
    feed = samples(mod, 1, seed=7)[0]
    assert relative(outputs(mod, feed), outputs(converted, feed)) < SOUND


def lowered_layouts(mod: tvm.IRModule) -> tvm.IRModule:
    """As the backend has it before kernels are made."""
    passes = [relax.transform.CanonicalizeBindings(), FoldCheapConstants(), ChannelsLast()]
    return tvm.transform.Sequential(passes)(mod)


def test_integers_pass_through_the_transposes_of_a_network_with_channels_last():
    net = Net()

    def conv(y: relay.Call) -> relay.Call:
        weight = relay.const((net.rng.randn(3, 3, 4, 4) / 6).astype("float32"))
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return relay.nn.conv2d(y, weight, padding=(1, 1), **layouts)

    y = relay.transpose(relay.nn.relu(conv(data(1, 8, 8, 4))), (0, 3, 1, 2))
    y = relay.transpose(relay.nn.max_pool2d(y, (2, 2), (2, 2)), (0, 2, 3, 1))
    y = conv(y)
    mod = quantized(y, partition_conversions="fully_integral")
    middle = tvm.IRModule({"main": mod["quantized_main"]})
    moved = ["permute_dims", "nn.max_pool2d", "permute_dims"]
    assert operators(middle, "int8") == ["tvm_quant.requantize", *moved]
    assert error(y) < SOUND


@pytest.mark.parametrize("target", ["nvidia/jetson-nano", "opencl"])
def test_code_for_a_gpu_has_no_instruction_that_it_may_lack(target):
    mod = quantized(residual(), hardware="cuda_dp4a")
    kernels = "".join(gpu_sources(relay.build(mod, target).executable.mod))
    assert "__kernel" in kernels or "__global__" in kernels
    assert "dp4a" not in kernels


def gpu_sources(module: tvm.runtime.Module) -> list[str]:
    own = [module.inspect_source()] if module.kind in ("cuda", "opencl") else []
    return [*own, *(text for part in module.imports for text in gpu_sources(part))]


def test_a_target_for_which_no_code_is_made_is_refused_by_name():
    with pytest.raises(BackendError, match="without a code generator for vulkan"):
        relay.build(quantized(residual(), "global_scale"), "vulkan")


def test_an_accelerator_that_shifts_takes_its_scale_from_data():
    net = Net()
    large = relay.nn.conv2d(image(), net.weight(4, 4, 3, 3, scale=8.0), padding=(1, 1))
    y = net.conv(relay.nn.relu(large), 4, 4)
    assert error(y, mode="percentile", hardware="vta") < SOUND
    assert error(y, mode="global_scale", hardware="vta") > 5 * SOUND


def chain(length: int) -> tvm.IRModule:
    net, y = Net(), data(1, 8, 32, 32)
    for _ in range(length):
        statistics = [relay.const((net.rng.rand(8) + 0.5).astype("float32")) for _ in range(4)]
        y = relay.nn.relu(relay.nn.batch_norm(net.conv(y, 8, 8), *statistics)[0])
    return relay.to_relax(y)


def test_calibration_keeps_no_tensors_of_samples():
    mod = chain(8)

    def peak(count: int) -> int:
        batches = samples(mod, count)
        gc.collect()
        tracemalloc.start()
        with relay.quantize.qconfig(calibrate_mode="kl_divergence", skip_conv_layers=[]):
            relay.quantize.quantize(mod, None, batches)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    few, many = peak(32), peak(128)
    kept = 96 * 9 * 8 * 32 * 32 * 4  # bytes: what 96 more samples would hold
    assert many - few < kept / 4


def test_quantizing_again_and_again_keeps_no_network_alive():
    size = 2048 * 2048 * 4

    def resident(turn: int) -> int:
        mod = relay.to_relax(relay.nn.dense(data(1, 2048), Net(turn).weight(2048, 2048)))
        with relay.quantize.qconfig(skip_dense_layer=False, weight_scale="max"):
            assert layers(relay.quantize.quantize(mod)) == ["matmul"]
        del mod
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    sizes = [resident(turn) for turn in range(6)]
    assert sizes[-1] - sizes[1] < size / 2


@pass_instrument
class Passes:
    """Counts the passes that run."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def run_before_pass(self, _mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self.seen[str(info.name)] += 1


@pytest.mark.parametrize(("mode", "compiled"), [("global_scale", 0), ("percentile", 1)])
def test_constants_are_computed_without_compiling_and_data_is_run_on_one_build(mode, compiled):
    mod, passes = chain(3), Passes()
    settings = relay.quantize.qconfig(calibrate_mode=mode, skip_conv_layers=[])
    with tvm.transform.PassContext(opt_level=3, instruments=[passes]), settings:
        result = relay.quantize.quantize(mod, None, samples(mod, 2))
    assert layers(result) == ["nn.conv2d"] * 3
    assert passes.seen["tirx.MakePackedAPI"] == compiled
