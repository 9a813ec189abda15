import math

import onnx
import pytest
from onnx import shape_inference

from tvm_quant.bench.zoo import ZOO
from tvm_quant.bench.zoo.builder import Builder

# Multiply-adds and parameters, in millions, as the papers give them.
KNOWN = {
    "resnet18": (1820, 11.7),
    "resnet50": (4100, 25.6),
    "mobilenet_v1": (569, 4.2),
    "mobilenet_v2": (301, 3.5),
    "mobilenet_v3_large": (219, 5.4),
    "densenet121": (2850, 8.0),
    "inception_v3": (5710, 23.8),
    "keyword_spotting": (2.66, 0.0226),  # 24,908 parameters, less 2304 of batch norms
    "anomaly_detection": (0.264, 0.266),
}


def shapes_of(model):
    graph = shape_inference.infer_shapes(model).graph
    values = [*graph.value_info, *graph.output, *graph.input]
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    return shapes | {weight.name: list(weight.dims) for weight in graph.initializer}


@pytest.mark.parametrize("name", ZOO)
def test_a_network_has_the_size_that_its_paper_gives(name):
    model = ZOO[name]()
    shapes = shapes_of(model)
    products = 0
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            weight, output = shapes[node.input[1]], shapes[node.output[0]]
            depth = math.prod(weight[1:]) if node.op_type == "Conv" else weight[0]
            products += math.prod(output) * depth
    weights = sum(math.prod(shapes[weight.name]) for weight in model.graph.initializer)
    millions, parameters = KNOWN[name]
    assert products / 1e6 == pytest.approx(millions, rel=0.03)
    assert weights / 1e6 == pytest.approx(parameters, rel=0.03)


def test_a_seed_makes_the_same_weights():
    def network(seed):
        net = Builder(size=8, seed=seed)
        return net.model(net.classify(net.conv("data", 4, 3), 3))

    assert network(1) == network(1)
    assert network(1) != network(2)
    onnx.checker.check_model(network(1), full_check=True)
