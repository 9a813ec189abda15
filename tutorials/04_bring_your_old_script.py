"""Bring your old script: a program for `tvm.relay`, on today's TVM.

A script that nobody wants to touch runs as it is:

    python -m tvm_relay old_script.py

This file shows the other way: the same calls with `import tvm_relay as relay`. It quantizes the
network for handwritten digits that comes with the package: with one assumed range for everything,
as `relay.quantize` did by default, and with ranges from a calibration set.
"""

import numpy as np
import tvm

import tvm_relay as relay
from tvm_quant import demo
from tvm_relay import graph_executor

# The front doors have their old names. `mod` is a Relax module; weights are constants in it.
mod, params = relay.frontend.from_onnx(str(demo.model_path()))
images, labels = demo.evaluation_data()
print(f"{len(images)} digits of {images.shape[1:]}, {len(np.unique(labels))} classes")


# A calibration set is whatever gives dictionaries: a list, or a generator such as this one.
def calibration():
    for image in demo.calibration_data()[:64]:
        yield {"image": image[None]}


def accuracy(network):
    """Top-1 of a module, on the machine that `relay.build` makes."""
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(network, target="llvm", params=params)
    runner = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    runner.set_input("image", images)
    runner.run()
    return float((runner.get_output(0).numpy().argmax(1) == labels).mean())


print(f"float                          {accuracy(mod):.1%}")

# One range for every tensor: quick, needs no data, and is right only if the range is.
for assumed in (8.0, 2.0):
    with relay.quantize.qconfig(calibrate_mode="global_scale", global_scale=assumed):
        network = relay.quantize.quantize(mod, params)
    print(f"global_scale {assumed:<4}              {accuracy(network):.1%}")

# Ranges by relative entropy, from the data. The first convolution and dense layers stay in float,
# as they did by default; the second call quantizes them too.
settings = {"calibrate_mode": "kl_divergence", "weight_scale": "max"}
for more in ({}, {"skip_conv_layers": [], "skip_dense_layer": False}):
    with relay.quantize.qconfig(**settings, **more):
        network = relay.quantize.quantize(mod, params, dataset=calibration())
    label = "kl_divergence, all layers" if more else "kl_divergence"
    print(f"{label:<30} {accuracy(network):.1%}")

# What the old stack did not have is reached by the same call.
with relay.quantize.qconfig(calibrate_mode="minmax", nbit_weight=4, weight_rounding="nearest"):
    network = relay.quantize.quantize(mod, params, dataset=calibration())
print(f"minmax, weights of 4 bits      {accuracy(network):.1%}")

# A network of Relay operators, and one more layer behind a network that came from a file.
probabilities = relay.nn.softmax(mod["main"].body)
extended = relay.IRModule.from_expr(relay.Function(tuple(mod["main"].params), probabilities))
print(f"with a softmax behind it       {accuracy(extended):.1%}")
