"""The Relay spellings of tvm_quant, for programs written against `tvm.relay`.

    from tvm_relay import quantize

    with quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
        mod = quantize.quantize(mod, params, dataset)

`mod` and `params` come from `tvm_quant.load`. There is no algorithm here: a `qconfig` becomes a
`tvm_quant.QuantizeConfig`, and `quantize` calls `tvm_quant.quantize`.
"""

from tvm_relay import quantize
from tvm_relay.structural import assert_structural_equal, structural_equal
from tvm_relay.text import (
    astext,
    fromtext,
    load_param_dict,
    parse,
    parse_expr,
    save_param_dict,
)

__all__ = [
    "assert_structural_equal",
    "astext",
    "fromtext",
    "load_param_dict",
    "parse",
    "parse_expr",
    "quantize",
    "save_param_dict",
    "structural_equal",
]
