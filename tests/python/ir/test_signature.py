import pytest
import tvm
from tvm import relax

from plain_tvm import build
from tvm_quant.errors import UnsupportedError
from tvm_quant.ir import TensorInfo, io_signature
from tvm_quant.ir.signature import main_function


def test_inputs_come_in_order_with_name_shape_and_type():
    batch = tvm.tirx.Var("n", "int64")
    mod = build(lambda _bb, x, ids: (x, ids), x=(batch, 3, 8, 8), ids=("int64", batch, 16))
    assert io_signature(mod) == [
        TensorInfo(name="x", shape=(None, 3, 8, 8), dtype="float32"),
        TensorInfo(name="ids", shape=(None, 16), dtype="int64"),
    ]


def test_a_module_without_main_is_refused_naming_what_it_holds():
    mod = build(lambda _bb, x: x, x=(2,))
    other = tvm.IRModule({tvm.ir.GlobalVar("forward"): mod["main"]})
    with pytest.raises(UnsupportedError, match=r"no function 'main'; it holds \['forward'\]"):
        main_function(other)


def test_an_input_that_is_no_tensor_is_refused_by_name():
    builder = relax.BlockBuilder()
    pair = relax.Var("pair", relax.TupleType([relax.TensorType((2,), "float32")]))
    with builder.function("main", [pair]):
        builder.emit_func_output(builder.emit(relax.TupleGetItem(pair, 0)))
    with pytest.raises(UnsupportedError, match=r"Input 'pair' has type .*; expected a tensor"):
        io_signature(builder.get())
