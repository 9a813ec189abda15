"""Programs that PyTorch's own flow quantized: the integers of their quantizers."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="reads programs of PyTorch")
from torch import nn  # noqa: E402
from tvm import relax  # noqa: E402

from tvm_quant import Runner, load, quantize  # noqa: E402
from tvm_quant.errors import FrontendError  # noqa: E402
from tvm_quant.frontend.pytorch.quantized import register_operators  # noqa: E402
from tvm_quant.ir import bindings, constant_value, op_name  # noqa: E402
from tvm_quant.op import Formula, is_simulated, spec_of  # noqa: E402
from tvm_quant.transform.realize import Realize  # noqa: E402

register_operators()
OPS = torch.ops.quantized_decomposed


# Programs written by hand ------------------------------------------------------------------------


class PerTensor(nn.Module):
    def __init__(self, low=-128, high=127, dtype=torch.int8, scale=0.03, zero_point=5):
        super().__init__()
        self.grid = (scale, zero_point, low, high, dtype)

    def forward(self, x):
        codes = OPS.quantize_per_tensor.default(x, *self.grid)
        return OPS.dequantize_per_tensor.default(codes, *self.grid)


class Codes(PerTensor):
    def forward(self, x):
        return OPS.quantize_per_tensor.default(x, *self.grid)


class FromCodes(PerTensor):
    def forward(self, x):
        return OPS.dequantize_per_tensor.default(x, *self.grid) + 1.0


class Requantized(PerTensor):
    def forward(self, x):
        codes = OPS.quantize_per_tensor.default(x, *self.grid)
        return OPS.dequantize_per_tensor.default(codes, 0.06, *self.grid[1:])


class Layer(nn.Module):
    """A convolution with weights of int8 and scales of each channel as tensors."""

    def __init__(self):
        super().__init__()
        generator = np.random.default_rng(0)
        weight = generator.integers(-127, 128, (4, 3, 3, 3)).astype("int8")
        self.register_buffer("weight", torch.from_numpy(weight))
        self.register_buffer("scale", torch.tensor([0.01, 0.02, 0.005, 0.5]))
        self.register_buffer("zero", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("bias", torch.tensor([0.3, -2.0, 0.0, 0.123]))

    def forward(self, x):
        grid = (0.02, 117, 0, 255, torch.uint8)
        x = OPS.dequantize_per_tensor.default(OPS.quantize_per_tensor.default(x, *grid), *grid)
        rest = (0, -127, 127, torch.int8)
        weight = OPS.dequantize_per_channel.default(self.weight, self.scale, self.zero, *rest)
        y = torch.relu(nn.functional.conv2d(x, weight, self.bias))
        grid = (0.25, 0, 0, 255, torch.uint8)
        return OPS.quantize_per_tensor.default(y, *grid)


def exported(module, *inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module.eval(), inputs)


def integers(program):
    return Runner(quantize(load(program)[0]))


def run(runner, *inputs):
    names = [info.name for info in runner.signature]
    return runner.run({n: x.numpy() for n, x in zip(names, inputs, strict=True)})[0]


def ties(scale):
    """Values at and around half steps."""
    steps = np.arange(-150, 150, dtype="float32") + np.float32(0.5)
    values = steps * np.float32(scale)
    return torch.from_numpy(np.stack([values, np.nextafter(values, np.float32(0))]))


@pytest.mark.parametrize(
    ("low", "high", "dtype", "zero_point"),
    [
        (-128, 127, torch.int8, 5),
        (-127, 127, torch.int8, 0),
        (-8, 7, torch.int8, 1),
        (0, 255, torch.uint8, 200),
        (-32768, 32767, torch.int16, 3),
    ],
)
def test_a_pair_is_one_quantizer_that_multiplies_by_the_reciprocal(low, high, dtype, zero_point):
    module, x = PerTensor(low, high, dtype, zero_point=zero_point), ties(0.03)
    mod, _ = load(exported(module, x))
    (call,) = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    assert is_simulated(call)
    spec = spec_of(call)
    assert (spec.qmin, spec.qmax, spec.formula) == (low, high, Formula.RECIPROCAL)
    for compiled in (mod, quantize(mod)):
        np.testing.assert_array_equal(run(Runner(compiled), x), module(x).numpy())


def test_codes_that_are_the_result_stay_integers():
    module, x = Codes(), ties(0.03)
    result = run(integers(exported(module, x)), x)
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, module(x).numpy())


def test_codes_that_are_the_input_stay_integers():
    module, x = FromCodes(), torch.arange(-128, 128, dtype=torch.int8)
    runner = integers(exported(module, x))
    assert [info.dtype for info in runner.signature] == ["int8"]
    np.testing.assert_array_equal(run(runner, x), module(x).numpy())


def test_a_pair_of_two_grids_is_no_quantizer():
    module, x = Requantized(), ties(0.03)
    np.testing.assert_allclose(run(integers(exported(module, x)), x), module(x).numpy(), rtol=1e-6)


def test_weights_of_a_layer_are_the_integers_of_the_program():
    module = Layer()
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 9, 9)).astype("float32"))
    mod, _ = load(exported(module, x))
    realized = quantize(mod)
    weights = [
        value
        for b in bindings(realized["main"])
        if op_name(b.value) == "relax.nn.conv2d"
        and (value := constant_value(b.value.args[1])) is not None
    ]
    np.testing.assert_array_equal(weights[0], module.weight.numpy())
    codes = run(Runner(realized), x)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, module(x).numpy())


def test_layers_keep_their_names():
    mod, _ = load(exported(Layer(), torch.zeros(1, 3, 9, 9)))
    assert [op_name(b.value) for b in bindings(mod["main"])].count("relax.nn.conv2d") == 1


def test_a_saved_program_is_read_without_the_operators_in_mind(tmp_path):
    path = tmp_path / "layer.pt2"
    x = torch.randn(1, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    torch.export.save(exported(Layer(), x), path)
    np.testing.assert_array_equal(run(integers(path), x), Layer()(x).numpy())


class Dynamic(nn.Module):
    def forward(self, x):
        scale, zero = OPS.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        grid = (scale, zero, 0, 255, torch.uint8)
        return OPS.dequantize_per_tensor.tensor(OPS.quantize_per_tensor.tensor(x, *grid), *grid)


def test_scales_that_are_chosen_at_run_time_are_refused():
    with pytest.raises(FrontendError, match=r"chooses a scale at run time.*is_dynamic=False"):
        load(exported(Dynamic(), torch.randn(2, 3)))


def test_a_scale_of_zero_is_refused():
    with pytest.raises(FrontendError, match=r"scales from 0.0 to 0.0.*calibrate"):
        load(exported(PerTensor(scale=0.0), torch.randn(2, 3)))


# Programs of torchao -----------------------------------------------------------------------------


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        y = torch.relu(self.point(torch.relu(self.depthwise(x))))
        y = y + torch.max_pool2d(x, 2)
        return self.head(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


class Transformer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 4
        x = self.norm(x + self.mix(torch.softmax(scores, -1) @ self.value(x)))
        return x + self.down(nn.functional.gelu(self.up(x)))


def xnnpack():
    from torchao.testing.pt2e import _xnnpack_quantizer as package

    config = package.get_symmetric_quantization_config(is_per_channel=True)
    return package.XNNPACKQuantizer().set_global(config)


def x86():
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as package

    config = package.get_default_x86_inductor_quantization_config()
    return package.X86InductorQuantizer().set_global(config)


def by_torchao(module, quantizer, shape):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    generator = torch.Generator().manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare_pt2e(
            torch.export.export(module.eval(), (torch.randn(shape),)).module(), quantizer
        )
        for _ in range(8):
            prepared(torch.randn(shape, generator=generator))
        return torch.export.export(convert_pt2e(prepared), (torch.randn(shape),))


@pytest.mark.parametrize("quantizer", [xnnpack, x86], ids=lambda q: q.__name__)
@pytest.mark.parametrize(
    ("network", "shape"), [(Convolutions, (2, 3, 16, 16)), (Transformer, (2, 5, 16))]
)
def test_networks_of_torchao_stay_within_a_step(network, shape, quantizer):
    """PyTorch adds float32 products in an order of its own, so that few codes are ambiguous."""
    pytest.importorskip("torchao", reason="quantizes with torchao")
    torch.manual_seed(0)
    program = by_torchao(network(), quantizer(), shape)
    mod, _ = load(program)
    (simulated, realized), reference = (Runner(mod), Runner(Realize()(mod))), program.module()
    steps = [float(spec_scale(b.value)) for b in bindings(mod["main"]) if is_activation(b.value)]
    generator = torch.Generator().manual_seed(1)
    apart = elements = 0
    for _ in range(20):
        x = torch.randn(shape, generator=generator)
        theirs = reference(x).detach().numpy()
        ours = run(realized, x)
        off = np.abs(ours - theirs) > 1e-5 * np.abs(theirs).max()
        apart, elements = apart + int(off.sum()), elements + theirs.size
        assert np.abs(ours - theirs).max() <= 2 * max(steps)
        assert np.abs(run(simulated, x) - theirs).max() <= 2 * max(steps)
    assert apart <= 0.15 * elements


def is_activation(call):
    return is_simulated(call) and constant_value(call.args[0]) is None


def spec_scale(call):
    scale = constant_value(call.args[1])
    return scale.max()
