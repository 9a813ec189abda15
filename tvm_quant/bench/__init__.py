"""Benchmarks: accuracy, noise, size and speed of quantized networks, one row a network.

    python -m tvm_quant.bench accuracy --only "resnet*"

The networks and data are too big for the repository: see `places`.
"""
