"""The network of an artifact: calls, edges and places of quantizers."""

import json
import re

import numpy as np
import pytest
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as S

from placed_networks import BODIES, conv, placed_network
from plain_tvm import build
from small_networks import ACTIVATION, WEIGHT, calibrated_network
from tvm_quant.artifact import (
    Call,
    Network,
    PlacedQuantizer,
    Port,
    calibration_table,
    network_of,
    placed_rows,
)
from tvm_quant.errors import ArtifactError
from tvm_quant.op import Kind
from tvm_quant.transform import Annotate

R = relax.op


def edges(network):
    return [
        (name, call.variable)
        for call in network.calls
        for port in call.ports
        for name in port.reads
    ]


def test_the_whole_network():
    data = PlacedQuantizer(variable="x_q", kind=Kind.INPUT, spec=ACTIVATION)
    kernel = PlacedQuantizer(variable="conv_w_q", kind=Kind.WEIGHT, spec=WEIGHT)
    conv = Call(
        variable="conv",
        node="stem.conv",
        op="relax.nn.conv2d",
        shape=(2, 5, 4, 4),
        ports=(
            Port(number=0, reads=("x",), tensor="x", quantizer=data),
            Port(number=1, reads=(), tensor="constant", quantizer=kernel),
        ),
    )
    relu = Call(
        variable="relu",
        node="relu",
        op="relax.nn.relu",
        shape=(2, 5, 4, 4),
        ports=(Port(number=0, reads=("conv",), tensor="stem.conv"),),
    )
    mean = Call(
        variable="mean",
        node="mean",
        op="relax.mean",
        shape=(2, 5),
        ports=(Port(number=0, reads=("relu",), tensor="relu"),),
    )
    softmax = Call(
        variable="softmax",
        node="head/softmax",
        op="relax.nn.softmax",
        shape=(2, 5),
        ports=(Port(number=0, reads=("mean",), tensor="mean"),),
        reason="no integer form",
    )
    assert network_of(calibrated_network()) == Network(
        inputs=(Call(variable="x", node="x", op="input", shape=(2, 3, 4, 4)),),
        calls=(conv, relu, mean, softmax),
        results=("softmax",),
    )


@pytest.mark.parametrize("name", BODIES)
def test_networks_survive_json(name):
    network = network_of(Annotate()(placed_network(name)))
    assert Network.from_dict(json.loads(json.dumps(network.to_dict()))) == network


def test_tuples_are_followed_to_the_calls_they_come_from():
    def body(bb, x):
        parts = bb.emit(R.split(x, 2, axis=1), "parts")
        left, right = (bb.emit(relax.TupleGetItem(parts, i), f"part{i}") for i in (0, 1))
        pair = bb.emit(relax.Tuple([right, bb.emit(R.nn.relu(left), "relu")]), "pair")
        both = bb.emit(R.concat(pair, axis=1), "both")
        return both, bb.emit(relax.TupleGetItem(pair, 0), "again")

    network = network_of(build(body, x=(1, 4, 2, 2)))
    assert edges(network) == [
        ("x", "parts"),
        ("parts", "relu"),
        ("parts", "both"),
        ("relu", "both"),
    ]
    assert network.results == ("both", "parts")


def test_a_branch_is_one_call_that_reads_what_its_sides_read():
    @I.ir_module
    class Branch:
        @S.function
        def main(x: S.Tensor((1, 4), "float32"), c: S.Tensor((), "bool")) -> S.Tensor(
            (1, 4), "float32"
        ):
            y = S.nn.relu(x)
            if c:
                t = S.add(y, x)
                b = t
            else:
                f = S.nn.relu(y)
                b = f
            with S.dataflow():
                z = S.negative(b)
                S.output(z)
            return z

    network = network_of(Branch)
    assert [call.op for call in network.calls] == ["relax.nn.relu", "if", "relax.negative"]
    assert set(edges(network)) == {("x", "y"), ("c", "b"), ("y", "b"), ("x", "b"), ("b", "z")}
    assert placed_rows(network, calibration_table(Branch)) == {}


def test_ports_with_one_quantizer_name_its_variable():
    def body(bb, x):
        return conv(bb, x, "left"), conv(bb, x, "right")

    network = network_of(Annotate()(build(body, x=(1, 4, 8, 8))))
    calls = {call.variable: call for call in network.calls}
    shared = [calls[name].ports[0].quantizer.variable for name in ("left", "right")]
    assert shared == ["x_q", "x_q"]


def test_rows_of_the_table_are_found_by_call_and_port():
    mod = calibrated_network()
    rows = placed_rows(network_of(mod), calibration_table(mod))
    assert list(rows) == [("conv", 0), ("conv", 1)]
    assert rows["conv", 0].zero_point == [128]
    np.testing.assert_allclose(rows["conv", 0].scale, 0.02)


def test_a_shorter_table_is_refused():
    mod = calibrated_network()
    message = "the calibration table is not of this network: at 'head/softmax' it has no row"
    with pytest.raises(ArtifactError, match=message):
        placed_rows(network_of(mod), calibration_table(mod)[:-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("calls"), "the network cannot be read: KeyError('calls')"),
        (lambda d: d["calls"][0].pop("op"), "the network cannot be read: KeyError('op')"),
        (lambda d: d.update(inputs=3), "the network cannot be read: TypeError("),
        (lambda d: d["calls"].reverse(), "'softmax' reads 'mean', which no call before it"),
        (
            lambda d: d["calls"][0]["ports"][0]["quantizer"].update(bits=77),
            "the network cannot be read: ConfigError('QuantSpec.bits is 77",
        ),
    ],
)
def test_a_damaged_network_is_refused(change, message):
    values = network_of(calibrated_network()).to_dict()
    change(values)
    with pytest.raises(ArtifactError, match=re.escape(message)):
        Network.from_dict(values)
