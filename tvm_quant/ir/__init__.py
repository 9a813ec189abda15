"""Small helpers to read Relax IR; no passes."""

from tvm_quant.ir.bindings import bindings, consumers, op_name, producers, tensor_shape
from tvm_quant.ir.constants import constant, constant_value
from tvm_quant.ir.names import NODE_NAMES, node_name, with_names_of, with_node_names
from tvm_quant.ir.rewrite import rewrite_functions
from tvm_quant.ir.signature import TensorInfo, io_signature
from tvm_quant.ir.tapped import tapped

__all__ = [
    "NODE_NAMES",
    "TensorInfo",
    "bindings",
    "constant",
    "constant_value",
    "consumers",
    "io_signature",
    "node_name",
    "op_name",
    "producers",
    "rewrite_functions",
    "tapped",
    "tensor_shape",
    "with_names_of",
    "with_node_names",
]
