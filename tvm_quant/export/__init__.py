"""Back doors: a calibrated network in another tool's format.

>>> sorted(FORMATS)
['qdq', 'qonnx']
"""

from tvm_quant.export.model import export_qdq
from tvm_quant.export.quantizers import FORMATS

__all__ = ["FORMATS", "export_qdq"]
