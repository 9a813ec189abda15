"""Networks that come with the package or with PyPI; `demo.run` compares float and int8 on them.

>>> model_path().name
'digits.onnx'
"""

from tvm_quant.demo.base import Demo
from tvm_quant.demo.digits import calibration_data, evaluation_data, model_path
from tvm_quant.demo.table import DEMOS

__all__ = ["DEMOS", "Demo", "calibration_data", "evaluation_data", "model_path"]
