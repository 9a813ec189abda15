"""Float against quantized."""

import json

import numpy as np
import pytest
import tvm
from tvm import relax

from plain_tvm import build
from small_networks import calibrated_network, samples
from tvm_quant.dataset import DatasetWarning, as_dataset
from tvm_quant.errors import DatasetError
from tvm_quant.ir import io_signature, tapped, with_node_names
from tvm_quant.report import evaluate, layer_sqnr, sqnr_db


def outputs(mod, data):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(data))
    return found.numpy() if hasattr(found, "numpy") else found[0].numpy()


FLOAT, INT8 = calibrated_network(quantized=False), calibrated_network()
DATA = samples(6)
EXACT, CLOSE = (
    np.concatenate([outputs(mod, part) for part in np.split(DATA, 3)]) for mod in (FLOAT, INT8)
)


def dataset(data=DATA, labels=None):
    source = {"x": data} if labels is None else {"x": data, "label": labels}
    return as_dataset(source, io_signature(FLOAT))


def test_accuracies_agreement_and_noise_are_those_of_the_outputs():
    labels = EXACT.argmax(1)
    labels[0] = (labels[0] + 1) % 5
    result = evaluate(FLOAT, INT8, dataset(labels=labels))
    assert result.samples == 6
    assert result.top1_float == pytest.approx(5 / 6)
    assert result.top1_int8 == pytest.approx((CLOSE.argmax(1) == labels).mean())
    assert result.agreement == pytest.approx((CLOSE.argmax(1) == EXACT.argmax(1)).mean())
    assert result.output_sqnr_db == [pytest.approx(sqnr_db(EXACT, CLOSE))]


def test_one_hot_labels_count_like_numbers():
    numbers = evaluate(FLOAT, INT8, dataset(labels=EXACT.argmax(1)))
    assert evaluate(FLOAT, INT8, dataset(labels=np.eye(5)[EXACT.argmax(1)])) == numbers
    assert numbers.top1_float == 1


def test_without_labels_there_is_agreement_but_no_accuracy():
    result = evaluate(FLOAT, INT8, dataset())
    assert (result.top1_float, result.top1_int8) == (None, None)
    assert result.agreement is not None


def test_rows_that_fill_a_batch_do_not_count():
    with pytest.warns(DatasetWarning, match="filled up"):
        short = dataset(DATA[:5], EXACT[:5].argmax(1))
    result = evaluate(FLOAT, INT8, short)
    assert result.samples == 5
    assert result.top1_float == 1
    assert result.output_sqnr_db == [pytest.approx(sqnr_db(EXACT[:5], CLOSE[:5]))]


def test_an_output_that_is_no_table_of_scores_has_only_noise():
    conv = [tapped(mod, ["conv"]) for mod in (FLOAT, INT8)]
    result = evaluate(*conv, dataset(labels=np.zeros(6, int)))
    assert (result.top1_float, result.agreement) == (None, None)
    assert 25 < result.output_sqnr_db[0] < 60


def test_labels_that_are_no_classes_are_refused():
    with pytest.raises(
        DatasetError, match=r"labels of shape \(2, 3\) and dtype float64 are no class"
    ):
        evaluate(FLOAT, INT8, dataset(labels=np.ones((6, 3))))
    with pytest.raises(DatasetError, match="are no class numbers; expected one integer a sample"):
        evaluate(FLOAT, INT8, dataset(labels=np.full(6, 0.5)))


def test_noise_of_each_layer_is_measured_under_the_users_name():
    (layer,) = layer_sqnr(FLOAT, INT8, dataset())
    exact, close = (
        np.concatenate([outputs(tapped(mod, ["conv"]), part) for part in np.split(DATA, 3)])
        for mod in (FLOAT, INT8)
    )
    assert (layer.node, layer.op) == ("stem.conv", "relax.nn.conv2d")
    assert layer.sqnr_db == pytest.approx(sqnr_db(exact, close))


def test_a_layer_with_a_factor_behind_it_is_compared_before_the_factor():
    def network(factor):
        def body(bb, x):
            total = bb.emit(relax.op.add(x, x), "total")
            if factor:
                total = bb.emit(relax.op.multiply(total, relax.const(2.0)), "total_matched")
            return bb.emit(relax.op.nn.relu(total), "relu")

        mod = build(body, x=(2, 3, 4, 4))
        mod["main"] = with_node_names(mod["main"], {"total": "sum", "total_matched": "sum"})
        return mod

    (layer,) = layer_sqnr(network(False), network(True), dataset())
    assert (layer.node, layer.op, layer.sqnr_db) == ("sum", "relax.add", np.inf)


def test_a_result_is_written_as_json():
    result = evaluate(FLOAT, INT8, dataset())
    assert json.loads(json.dumps(result.to_dict()))["samples"] == 6
