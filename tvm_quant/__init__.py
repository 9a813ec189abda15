"""Post-training quantization for Apache TVM Relax."""

from tvm_quant._pins import check_pins

check_pins()

from tvm_quant._ffi import register_errors  # noqa: E402

register_errors()

from tvm_quant import dataset, estimator, hardware, transform  # noqa: E402
from tvm_quant.backend import Runner, compile  # noqa: E402
from tvm_quant.config import BiasCorrection, LayerConfig, QuantizeConfig  # noqa: E402
from tvm_quant.errors import TvmQuantError  # noqa: E402
from tvm_quant.export import export_qdq  # noqa: E402
from tvm_quant.frontend import load  # noqa: E402
from tvm_quant.op import Kind, QuantSpec, requantize, simulated_quantize  # noqa: E402
from tvm_quant.quantize import quantize  # noqa: E402
from tvm_quant.search import (  # noqa: E402
    AccuracyTarget,
    Budget,
    control_accuracy,
    search_bits,
)
from tvm_quant.statistics import Statistics  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "AccuracyTarget",
    "BiasCorrection",
    "Budget",
    "Kind",
    "LayerConfig",
    "QuantSpec",
    "QuantizeConfig",
    "Runner",
    "Statistics",
    "TvmQuantError",
    "compile",
    "control_accuracy",
    "dataset",
    "estimator",
    "export_qdq",
    "hardware",
    "load",
    "quantize",
    "requantize",
    "search_bits",
    "simulated_quantize",
    "transform",
]
