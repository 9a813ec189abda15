import numpy as np
from tvm import relax

from small_networks import calibrated_network
from tvm_quant.report import layer_variables


def test_layers_are_named_as_the_user_knows_them():
    assert layer_variables(calibrated_network()) == {"stem.conv": "conv"}


def test_a_product_and_its_bias_are_one_layer_under_the_name_of_the_product():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(
                relax.op.matmul(x, relax.const(np.eye(3, dtype="float32"))), "fc"
            )
            bias = builder.emit(relax.op.add(product, relax.const(np.ones(3, "float32"))), "bias")
            out = builder.emit_output(builder.normalize(relax.op.add(bias, x)), "total")
        builder.emit_func_output(out)
    assert layer_variables(builder.get()) == {"fc": "bias", "total": "total"}
