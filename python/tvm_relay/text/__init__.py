"""Relay's text format, version 0.0.5: reading it (`parse`) and writing it (`astext`)."""

from tvm_relay.text.ndarray import load_param_dict, save_param_dict
from tvm_relay.text.parser import fromtext, parse, parse_expr
from tvm_relay.text.printer import astext
from tvm_relay.text.source import RelayTextError

__all__ = [
    "RelayTextError",
    "astext",
    "fromtext",
    "load_param_dict",
    "parse",
    "parse_expr",
    "save_param_dict",
]
