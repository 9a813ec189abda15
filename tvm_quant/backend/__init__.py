"""Backends: compiling a module for a target, and running it."""

from tvm_quant.backend.build import BACKENDS, compile
from tvm_quant.backend.functions import Functions
from tvm_quant.backend.runner import Runner, median_latency_ms
from tvm_quant.backend.target import host_target, resolve_target

__all__ = [
    "BACKENDS",
    "Functions",
    "Runner",
    "compile",
    "host_target",
    "median_latency_ms",
    "resolve_target",
]
