"""Objects of MXNet, against what MXNet computes with them; skipped where it is not installed."""

import numpy as np
import pytest
import tvm

import tvm_quant
from mxnet_live import forward, installed, values
from plain_tvm import run
from tvm_quant.errors import FrontendError
from tvm_quant.transform import Prepare

RNG = np.random.default_rng(0)

#: Largest error, relative to the largest output.
FLOAT_ERROR = 1e-5


@pytest.fixture(scope="module")
def mx():
    module = installed()
    module.random.seed(0)
    return module


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def assert_close(results, wanted):
    assert len(results) == len(wanted)
    for got, value in zip(results, wanted, strict=True):
        assert got.shape == value.shape
        assert np.abs(got - value).max() <= FLOAT_ERROR * np.abs(value).max()


def computes(mod, *inputs):
    runner = tvm_quant.Runner(Prepare()(mod), "llvm")
    return runner.run(dict(zip((p.name for p in mod["main"].params), inputs, strict=True)))


def operators(sym, x, i):
    """{name: symbol of one operator on (2, 4, 7, 6) and indices}."""
    w = sym.var
    sizes = {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "num_group": 2}
    windows = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
    return {
        "conv": sym.Convolution(x, num_filter=6, dilate=(1, 2), **sizes),
        "deconv": sym.Deconvolution(x, num_filter=6, **sizes),
        "dense": sym.FullyConnected(x, num_hidden=5),
        "dense last": sym.FullyConnected(x, num_hidden=5, flatten=False, no_bias=True),
        "norm": sym.BatchNorm(x, fix_gamma=False),
        "norm fixed": sym.BatchNorm(x, eps=0.1),
        "layer": sym.LayerNorm(x),
        "instance": sym.InstanceNorm(x),
        "l2": sym.L2Normalization(x, mode="spatial"),
        "lrn": sym.LRN(x, nsize=5, alpha=0.3),
        **{
            f"{kind} {convention} {whole}": sym.Pooling(
                x,
                pool_type=kind,
                pooling_convention=convention,
                count_include_pad=whole,
                **windows,
            )
            for kind in ("max", "avg", "sum")
            for convention in ("valid", "full")
            for whole in (True, False)
        },
        "global": sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1)),
        "adaptive": sym.contrib.AdaptiveAvgPooling2D(x, output_size=(3, 2)),
        "resized": sym.contrib.BilinearResize2D(x, height=10, width=9),
        "up": sym.UpSampling(x, scale=2, sample_type="nearest"),
        "up linear": sym.UpSampling(
            x, w("up_weight", shape=(4, 1, 4, 4)), scale=2, sample_type="bilinear", num_filter=4
        ),
        **{
            f"act {kind}": sym.Activation(x, act_type=kind)
            for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign")
        },
        **{
            f"leaky {kind}": sym.LeakyReLU(x, act_type=kind)
            for kind in ("leaky", "prelu", "elu", "selu", "gelu")
        },
        "hard": sym.hard_sigmoid(x),
        "softmax": sym.softmax(x, axis=1, temperature=3.0),
        "log softmax": sym.log_softmax(x),
        "channel": sym.SoftmaxActivation(x, mode="channel"),
        "loss": sym.SoftmaxOutput(x, w("label"), multi_output=True),
        "reshape": sym.Reshape(x, shape=(-4, 1, -1, -3, 0)),
        "reshape back": sym.Reshape(x, shape=(-1, 0), reverse=True),
        "slice": sym.slice(x, begin=(None, 3, 1), end=(None, 0, None), step=(None, -1, 2)),
        "slice axis": sym.slice_axis(x, axis=3, begin=-4, end=None),
        "parts": sym.Group(list(sym.split(x, num_outputs=2, axis=1))),
        "pad": sym.Pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 1, 2, 3, 1)),
        "crop": sym.Crop(x, h_w=(4, 4), center_crop=True, num_args=1),
        "depth": sym.depth_to_space(x, 2),
        "mean": sym.mean(x, axis=(0, 2), exclude=True),
        "total": sym.sum(x),
        "largest": sym.argmax(x, axis=1),
        "arithmetic": (2 - x * 3) / (1 + x * x) > 0.1,
        "power": (x * x + 0.1) ** 0.3,
        "rows": sym.Embedding(i, w("table"), input_dim=9, output_dim=3),
        "taken": sym.take(x, i, axis=2, mode="wrap"),
        "repeated": sym.repeat(x, 3, axis=2),
        "wide": sym.broadcast_axis(sym.mean(x, axis=1, keepdims=True), axis=1, size=3),
        "stack": sym.stack(x, x, axis=2),
        "product": sym.batch_dot(
            sym.reshape(x, (8, 7, 6)), sym.reshape(x, (8, 7, 6)), transpose_b=True
        ),
    }


def test_operators_compute_what_mxnet_computes(mx):
    """All in one network, each result compared."""
    x, i = mx.sym.var("x"), mx.sym.var("i")
    data, indices = normal(2, 4, 7, 6), np.array([[0, 8], [3, 5]], "float32")
    named = operators(mx.sym, x, i)
    group = mx.sym.Group(list(named.values()))
    shapes, _, extra = group.infer_shape(x=data.shape, i=indices.shape)
    sizes = dict(zip(group.list_arguments(), shapes, strict=True))
    sizes |= dict(zip(group.list_auxiliary_states(), extra, strict=True))
    params = {
        name: mx.nd.array(np.abs(normal(*shape)))
        for name, shape in sizes.items()
        if name not in ("x", "i")
    }
    wanted = forward(group, params, x=data, i=indices)
    stored = {name: array for name, array in params.items() if name != "label"}
    mod, _ = tvm_quant.load((group, stored), shapes={"x": data.shape, "i": indices.shape})
    order = [{"x": data, "i": indices}[str(p.name)] for p in mod["main"].params]
    results = run(mod, *order)
    names = [name for name, symbol in named.items() for _ in symbol.list_outputs()]
    for name, got, value in zip(names, results, wanted, strict=True):
        error = np.abs(got - value).max()
        assert got.shape == value.shape and error <= FLOAT_ERROR * np.abs(value).max(), name


def small_network(mx):
    nn = mx.gluon.nn
    block = nn.HybridSequential(prefix="net_")
    with block.name_scope():
        block.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        block.add(nn.MaxPool2D(), nn.Dropout(0.5), nn.Dense(10))
    block.initialize(mx.init.Xavier())
    return block


def test_a_block_a_symbol_and_its_files_are_the_same_network(mx, tmp_path):
    block, x = small_network(mx), normal(2, 3, 8, 8)
    mod, _ = tvm_quant.load(block, shapes={"data": x.shape})  # its shapes were open until now
    assert_close(computes(mod, x), [block(mx.nd.array(x)).asnumpy()])
    block.hybridize()
    block(mx.nd.array(x))
    block.export(str(tmp_path / "net"))
    symbol, arguments, statistics = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    imported = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    for source in (
        block,
        imported,
        tmp_path / "net-symbol.json",
        (symbol, {**arguments, **statistics}),
        (symbol, arguments, statistics),
        (symbol, tmp_path / "net-0000.params"),
    ):
        same, _ = tvm_quant.load(source, shapes={"data": x.shape})
        tvm.ir.assert_structural_equal(same, mod, map_free_vars=True)
    example, _ = tvm_quant.load(block, example_inputs=[mx.nd.array(x)])
    tvm.ir.assert_structural_equal(example, mod, map_free_vars=True)


def test_a_block_that_cannot_be_read_says_why(mx):
    nn = mx.gluon.nn
    with pytest.raises(FrontendError, match="does not say the shapes of its inputs"):
        tvm_quant.load(small_network(mx))
    with pytest.raises(FrontendError, match="is no HybridBlock, so it has no graph"):
        tvm_quant.load(nn.Sequential(), shapes={"data": (1, 2)})
    with pytest.raises(FrontendError, match=r"have no values: .*initialize\(\)"):
        tvm_quant.load(nn.Dense(3, in_units=2), shapes={"data": (1, 2)})

    with pytest.raises(FrontendError, match="The MXNet model cannot be imported: "):
        tvm_quant.load(small_network(mx), shapes={"data": (1, 3)})

    class Odd(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x.asnumpy()

    with pytest.raises(FrontendError, match="cannot be traced with symbols data"):
        tvm_quant.load(Odd(), shapes={"data": (1, 2)})


def test_a_block_of_several_inputs_and_outputs(mx):
    class Both(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, a, b):
            return a + b, [F.concat(a, b, dim=1), (a - b,)]

    a, b = normal(1, 3), normal(1, 3)
    mod, _ = tvm_quant.load(Both(), example_inputs=[a, b])
    assert [str(p.name) for p in mod["main"].params] == ["data0", "data1"]
    assert_close(run(mod, a, b), [a + b, np.concatenate([a, b], 1), a - b])


@pytest.mark.parametrize(
    ("name", "size"), [("mobilenetv2_0.25", 64), ("resnet18_v1", 32), ("squeezenet1.1", 224)]
)
def test_networks_of_the_zoo(mx, name, size):
    """`tvm-quant bench mxnet` runs all of them."""
    block = mx.gluon.model_zoo.vision.get_model(name)
    block.initialize(mx.init.Xavier())
    x = normal(1, 3, size, size)
    wanted = block(mx.nd.array(x)).asnumpy()
    mod, _ = tvm_quant.load(block, shapes={"data": x.shape})
    assert_close(computes(mod, x), [wanted])


def fits_16_bits(weight):
    """Weights whose codes add up without saturating where MXNet adds two products in 16 bits.

    One alone in its row sets the scale; the others are half as large.
    """
    weight[0] = 0
    weight[0, 0] = 2 * weight.abs().max()
    return weight


@pytest.mark.parametrize("kind", ["int8", "auto"])
def test_a_network_that_mxnet_quantized_gives_its_codes(mx, kind):
    """Matrix products: its convolutions of codes give other numbers than it means by them."""
    from mxnet.contrib.quantization import quantize_model

    nn = mx.gluon.nn
    block = nn.HybridSequential()
    block.add(nn.Dense(32, activation="relu"), nn.Dense(16), nn.Dense(10))
    block.initialize(mx.init.Xavier())
    x = RNG.uniform(0, 1, (64, 20)).astype("float32")
    block(mx.nd.array(x))
    for layer in block:
        layer.weight.set_data(fits_16_bits(layer.weight.data()))
    symbol, params = block(mx.sym.var("data")), values(block)
    quantized, arguments, statistics = quantize_model(
        symbol,
        params,
        {},
        calib_mode="naive",
        calib_data=mx.io.NDArrayIter(x, batch_size=16),
        num_calib_examples=64,
        quantized_dtype=kind,
    )
    (wanted,) = forward(quantized, {**arguments, **statistics}, data=x)
    (exact,) = forward(symbol, params, data=x)
    mod, _ = tvm_quant.load((quantized, arguments, statistics), shapes={"data": x.shape})
    integer = tvm_quant.quantize(mod)
    (got,) = tvm_quant.Runner(integer, "llvm").run({"data": x})
    reach = np.abs(exact).max()
    assert np.abs(got - wanted).max() < 0.03 * reach
    assert np.abs(got - exact).max() < 0.05 * reach


def test_a_convolution_that_mxnet_quantized_means_the_float_network(mx):
    """MXNet 1.9.1 itself misses by 100 % here: its range of u8 x s8 sums is that of s8 x s8."""
    from mxnet.contrib.quantization import quantize_model

    block = small_network(mx)
    x = RNG.uniform(0, 1, (8, 3, 8, 8)).astype("float32")
    block(mx.nd.array(x))
    symbol, params = block(mx.sym.var("data")), values(block)
    names = set(symbol.list_auxiliary_states())
    quantized, arguments, statistics = quantize_model(
        symbol,
        {name: array for name, array in params.items() if name not in names},
        {name: array for name, array in params.items() if name in names},
        calib_mode="naive",
        calib_data=mx.io.NDArrayIter(x, batch_size=8),
        num_calib_examples=8,
        quantized_dtype="auto",
    )
    (exact,) = forward(symbol, params, data=x)
    mod, _ = tvm_quant.load((quantized, arguments, statistics), shapes={"data": x.shape})
    (got,) = tvm_quant.Runner(tvm_quant.quantize(mod), "llvm").run({"data": x})
    assert np.abs(got - exact).max() < 0.05 * np.abs(exact).max()
