"""Benchmarks: accuracy, noise, size and speed of quantized networks, one row a network.

    tvm-quant bench accuracy --only "resnet*"

The networks and data are too big for the repository: see `places`.
"""
