"""Converters of networks that were quantized elsewhere.

All of them end in one form: float operators between calibrated `simulated_quantize` calls, from
which `Realize` makes integers. Where the model itself handles codes, as its inputs, its outputs and
between the operators of ONNX Runtime, they are `R.quantize` of such a call, and whoever reads the
codes on the same grid takes the call instead (`codes.py`).
"""
