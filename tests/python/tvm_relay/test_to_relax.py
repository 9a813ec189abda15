"""Relay graphs become Relax modules: whole modules are compared."""

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_quant
import tvm_relay as relay
from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_relay.op import OPS
from tvm_relay.op.reshape_codes import decode
from tvm_relay_networks import Net, data


def run(expr, **feed):
    return tvm_quant.Runner(relay.to_relax(expr)).run(feed)


def test_a_convolution_types_its_weight_and_bias():
    x = data(1, 3, 8, 8)
    conv = relay.nn.conv2d(x, relay.var("w"), channels=4, kernel_size=(3, 3), padding=(1, 1))
    y = relay.nn.relu(relay.nn.bias_add(conv, relay.var("b")))

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((1, 3, 8, 8), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((4,), "float32"),
        ):
            with R.dataflow():
                conv = R.nn.conv2d(x, w, padding=1)
                bias = R.reshape(b, R.shape([1, 4, 1, 1]))
                total = R.add(conv, bias)
                y = R.nn.relu(total)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(relay.to_relax(y), Expected)


def test_functions_are_inlined_and_lets_are_bound():
    x, a, v = data(2), relay.var("a"), relay.var("v")
    double = relay.Function((a,), a + a)
    expr = relay.Let(v, double(x), v * v)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                doubled = R.add(x, x)
                y = R.multiply(doubled, doubled)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(relay.to_relax(expr), Expected)


def test_a_relax_network_continues_in_relay():
    net = Net()
    first = relay.to_relax(relay.nn.relu(net.conv(data(1, 3, 4, 4), 3, 4)))["main"]
    whole = relay.Function(tuple(first.params), relay.nn.batch_flatten(first.body))
    again = Net()
    expected = relay.nn.batch_flatten(relay.nn.relu(again.conv(data(1, 3, 4, 4), 3, 4)))
    tvm.ir.assert_structural_equal(relay.to_relax(whole), relay.to_relax(expected))


def test_a_branch_is_computed_by_choice():
    x = data(3)
    y = relay.If(relay.sum(x) < 0.0, x + 1.0, x * 2.0)
    value = np.float32([1, 2, 3])
    np.testing.assert_array_equal(run(y, x=value)[0], value * 2)
    np.testing.assert_array_equal(run(y, x=-value)[0], 1 - value)


def test_recursion_is_refused():
    name = relay.GlobalVar("main")
    x = data(2)
    mod = relay.Module({name: relay.Function((x,), name(x))})
    with pytest.raises(UnsupportedError, match="recursion is not converted"):
        relay.to_relax(mod)


def test_an_unknown_operator_is_named_with_those_like_it():
    call = relay.Call(relay.expr.Op("nn.conv2"), (data(1),))
    with pytest.raises(FrontendError, match=r"'nn.conv2'. Similar are \['nn.conv2d'"):
        relay.to_relax(call)


def test_operands_that_do_not_fit_are_shown():
    with pytest.raises(FrontendError, match=r"add\(.*2.*3.*\)"):
        relay.to_relax(data(2) + data(3, name="y"))


def test_a_variable_without_a_type_is_refused_by_name():
    with pytest.raises(FrontendError, match="'x' has no type"):
        relay.to_relax(relay.nn.relu(relay.var("x")))


@pytest.mark.parametrize(
    ("shape", "codes", "wanted"),
    [
        ((2, 3, 4), (0, -1), (2, -1)),
        ((2, 3, 4), (-2,), (2, 3, 4)),
        ((2, 3, 4), (-3, -2), (6, 4)),
        ((2, 3, 4), (-4, -1, 2, 0, 0), (1, 2, 3, 4)),
        ((2, 3, 4), (6, 1, 4), (6, 1, 4)),
    ],
)
def test_codes_of_reshape(shape, codes, wanted):
    assert decode(shape, codes) == wanted


def test_codes_that_ask_for_too_much_are_refused():
    with pytest.raises(FrontendError, match=r"newshape \(0, 0, 0\) does not fit"):
        decode((2, 3), (0, 0, 0))


IMAGE = np.random.RandomState(0).randn(1, 4, 4, 6).astype("float32")


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        (lambda x: relay.transpose(x, (0, 2, 3, 1)), lambda a: a.transpose(0, 2, 3, 1)),
        (lambda x: relay.mean(x, (2, 3), exclude=True), lambda a: a.mean((0, 1))),
        (lambda x: relay.strided_slice(x, [0, 1], [1, 2], slice_mode="size"), lambda a: a[:, 1:3]),
        (lambda x: relay.split(x, 2, axis=1)[1], lambda a: a[:, 2:]),
        (lambda x: relay.reverse(x, 2), lambda a: a[:, :, ::-1]),
        (lambda x: relay.take(x, relay.const([2, 0]), axis=3), lambda a: a[..., [2, 0]]),
        (lambda x: relay.where(x < 0.0, x, x * 2.0), lambda a: np.where(a < 0, a, a * 2)),
        (lambda x: relay.expand_dims(x, -1, 2), lambda a: a[..., None, None]),
        (lambda x: relay.layout_transform(x, "NCHW", "NHWC"), lambda a: a.transpose(0, 2, 3, 1)),
        (lambda x: relay.clip(x, -0.5, 0.5), lambda a: a.clip(-0.5, 0.5)),
        (
            lambda x: relay.nn.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)), 3.0),
            lambda a: np.pad(a, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=3),
        ),
        (
            lambda x: relay.nn.upsampling(x, 2, 2),
            lambda a: a.repeat(2, 2).repeat(2, 3),
        ),
    ],
)
def test_an_operator_moves_values_as_numpy_does(expr, wanted):
    (got,) = run(expr(data(1, 4, 4, 6)), x=IMAGE)
    np.testing.assert_array_equal(got, wanted(IMAGE).astype("float32"))


def test_a_fixed_point_product_rounds_half_up():
    values = np.int32([-3, -2, -1, 0, 1, 2, 3, 100001])
    x = relay.var("x", shape=(8,), dtype="int32")
    (got,) = run(relay.fixed_point_multiply(x, 1 << 30, 0), x=values)
    np.testing.assert_array_equal(got, np.floor(values / 2 + 0.5).astype("int32"))


def test_quantized_convolutions_are_exact_with_zero_points():
    rng = np.random.RandomState(0)
    codes = rng.randint(0, 256, (1, 3, 5, 5)).astype("uint8")
    kernel = rng.randint(-127, 128, (2, 3, 3, 3)).astype("int8")
    scalar = (relay.const(v) for v in (7, 3, 0.1, 0.2))
    x = relay.var("x", shape=codes.shape, dtype="uint8")
    attrs = {"kernel_size": (3, 3), "channels": 2, "padding": (1, 1)}
    (got,) = run(relay.qnn.op.conv2d(x, relay.const(kernel), *scalar, **attrs), x=codes)
    real = np.pad(codes.astype("int64") - 7, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(real, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, kernel.astype("int64") - 3)
    np.testing.assert_array_equal(got, wanted.astype("int32"))


def test_each_public_function_has_the_signature_of_its_row():
    for name in OPS:
        entry = OPS[name]
        assert set(entry.signature().parameters) == {*entry.operands, *entry.attributes}
    assert list(OPS["nn.conv2d"].attributes)[:4] == ["strides", "padding", "dilation", "groups"]


def test_arguments_that_an_operator_does_not_have_are_refused():
    with pytest.raises(TypeError, match=r"nn.softmax\(data, axis=-1\): got an unexpected"):
        relay.nn.softmax(data(2), axes=1)
    with pytest.raises(AttributeError, match=r"'nn\.conv9d' is not in the table"):
        _ = relay.nn.conv9d


def test_a_relax_network_with_an_open_batch_continues_in_relay():
    first = relay.to_relax(relay.var("x", relay.TensorType((relay.Any(), 3))) * 2.0)["main"]
    whole = relay.Function(tuple(first.params), relay.nn.relu(first.body))
    value = np.float32([[-1, 2, 3]] * 4)
    np.testing.assert_array_equal(run(whole, x=value)[0], np.maximum(value * 2, 0))
