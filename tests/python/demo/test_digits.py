from collections import Counter

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tvm_quant import demo
from tvm_quant.demo import digits


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(demo.model_path())


def test_the_files_are_small():
    assert demo.model_path().stat().st_size < 300_000
    assert (digits.HERE / "digits.npz").stat().st_size < 200_000


def test_the_float_network_reads_unseen_digits(model):
    images, labels = demo.evaluation_data()
    (logits,) = ReferenceEvaluator(model).run(None, {"image": images})
    assert (logits.argmax(1) == labels).mean() > 0.97


def test_the_network_holds_what_is_hard_to_quantize(model):
    nodes = Counter(node.op_type for node in model.graph.node)
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    groups = [
        attribute.i for node in convs for attribute in node.attribute if attribute.name == "group"
    ]
    assert nodes["BatchNormalization"] == nodes["Conv"] == 13
    assert nodes["Clip"] == 10
    assert nodes["Add"] == 2
    assert nodes["GlobalAveragePool"] == nodes["Gemm"] == 1
    assert sorted(group for group in groups if group > 1) == [72, 120, 120]


def test_the_batch_is_symbolic(model):
    (image,) = model.graph.input
    assert image.type.tensor_type.shape.dim[0].dim_param == "N"


def test_every_node_has_a_name_of_its_own(model):
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)


def test_calibration_and_evaluation_share_no_image():
    calibration, (evaluation, labels) = demo.calibration_data(), demo.evaluation_data()
    assert calibration.shape == (256, 1, 8, 8)
    assert evaluation.shape == (600, 1, 8, 8)
    assert calibration.dtype == evaluation.dtype == np.float32
    assert 0 == evaluation.min() < evaluation.max() == 1
    assert set(labels) == set(range(10))
    assert not {image.tobytes() for image in calibration} & {e.tobytes() for e in evaluation}
