"""Post-training quantization for Apache TVM Relax."""

from tvm_quant._pins import check_pins

check_pins()
