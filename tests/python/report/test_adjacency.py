"""Which quantizers go together."""

from tvm import relax

from placed_networks import conv, placed_network
from plain_tvm import build
from small_networks import calibrated_network
from tvm_quant.artifact import network_of
from tvm_quant.report import adjacency_groups
from tvm_quant.transform import Annotate


def groups(mod):
    """The groups as sets, in order."""
    found: dict[int, set[str]] = {}
    for name, number in adjacency_groups(network_of(mod)).items():
        found.setdefault(number, set()).add(name)
    return list(found.values())


def test_data_and_weight_of_a_call_are_adjacent():
    assert groups(calibrated_network()) == [{"x_q", "conv_w_q"}]


def test_a_chain_has_a_group_for_each_layer():
    assert groups(Annotate()(placed_network("depthwise"))) == [
        {"x_q", "expand_weight_q"},
        {"expand_relu_q", "depthwise_weight_q"},
        {"depthwise_relu_q", "project_weight_q"},
    ]


def test_a_tensor_that_two_calls_read_joins_them():
    assert groups(Annotate()(placed_network("residual"))) == [
        {"x_q", "stem_weight_q"},
        {"stem_relu_q", "body_weight_q"},
        {"total_q", "head_weight_q"},
    ]


def test_parts_of_a_concat_are_adjacent_to_the_layer_that_reads_it():
    assert groups(Annotate()(placed_network("concat"))) == [
        {"x_q", "left_weight_q", "right_weight_q", "middle_weight_q"},
        {"left_relu_q", "right_relu_q", "middle_relu_q", "head_weight_q"},
    ]


def test_moved_codes_are_followed():
    def body(bb, x):
        moved = bb.emit(relax.op.nn.max_pool2d(conv(bb, x, "first"), (2, 2)), "pool")
        return conv(bb, moved, "second")

    assert groups(Annotate()(build(body, x=(1, 4, 8, 8)))) == [
        {"x_q", "first_weight_q"},
        {"first_relu_q", "second_weight_q"},
    ]
