"""The grids of the built-in hardware rows, as quantizers hold them."""

from tvm_quant.op import QuantSpec

U8 = QuantSpec(bits=8, signed=False, symmetric=False)
S8 = QuantSpec(bits=8, signed=True, narrow=True, symmetric=True)
S8_AFFINE = QuantSpec(bits=8, signed=True, symmetric=False)
