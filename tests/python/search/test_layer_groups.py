import pytest
from tvm import relax

from plain_tvm import build
from realized import normal
from tvm_quant import QuantizeConfig
from tvm_quant.ir import with_node_names
from tvm_quant.search import LayerGroup, layer_groups
from tvm_quant.transform import Annotate, Prepare

NN = relax.op.nn


def group(*names, weights):
    return LayerGroup(nodes=names, layers=names, weights=weights)


def test_layers_that_read_one_quantizer_share_a_group(subject):
    assert subject.groups() == [
        group("stem", weights=4 * 2 * 9),
        group("left", "right", weights=4 * 4 + 4 * 4 * 9),
        group("head", weights=8 * 5),
    ]


def groups(body, names=None, **config):
    mod = Prepare()(build(body, x=(1, 4, 6, 6)))
    if names:
        mod["main"] = with_node_names(mod["main"], names)
    return layer_groups(Annotate(QuantizeConfig(**config))(mod))


def chain(b, x):
    y = b.emit(NN.relu(b.emit(NN.conv2d(x, relax.const(normal(4, 4, 1, 1))), "first")))
    return NN.relu(b.emit(NN.conv2d(y, relax.const(normal(2, 4, 1, 1))), "second"))


def test_layers_of_one_name_share_a_group():
    found = groups(chain, {"first": "twice", "second": "twice"})
    assert found == [LayerGroup(nodes=("twice",), layers=("first", "second"), weights=24)]


def test_layers_in_float_have_no_group():
    assert groups(chain, skip=("first",)) == [group("second", weights=8)]
    with pytest.warns(UserWarning, match="Nothing was quantized"):
        assert groups(chain, skip=("relax.nn.conv2d",)) == []


def test_a_max_pool_between_quantizer_and_layer_hides_nothing():
    def body(b, x):
        y = b.emit(NN.relu(b.emit(NN.conv2d(x, relax.const(normal(4, 4, 1, 1))), "first")))
        left = b.emit(NN.conv2d(y, relax.const(normal(4, 4, 1, 1, seed=1))), "second")
        pooled = b.emit(NN.max_pool2d(y, (1, 1)), "pool")
        right = b.emit(NN.conv2d(pooled, relax.const(normal(4, 4, 1, 1, seed=2))), "third")
        return left, right

    assert groups(body) == [
        group("first", weights=16),
        group("second", "third", weights=32),
    ]


def test_a_shared_weight_is_counted_once():
    weight = relax.const(normal(4, 4, 1, 1))

    def body(b, x):
        y = b.emit(NN.relu(b.emit(NN.conv2d(x, weight), "first")))
        return b.emit(NN.conv2d(y, weight), "second")

    found = groups(body)
    assert sum(one.weights for one in found) == 16
