"""A network of relay.testing, as the tutorials of old have it, in float and quantized."""

import numpy as np
import tvm
import tvm.relay.testing
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay import testing

batch_size, num_class = 1, 10
image_shape = (3, 32, 32)
data_shape = (batch_size,) + image_shape
out_shape = (batch_size, num_class)

mod, params = relay.testing.resnet.get_workload(
    num_layers=18, batch_size=batch_size, image_shape=image_shape, num_classes=num_class
)
assert "@main(%data: Tensor[(1, 3, 32, 32), float32]" in mod.astext(show_meta_data=False)
assert mod is not testing.resnet.get_workload(num_layers=8, image_shape=(3, 28, 28))[0]

with relay.quantize.qconfig(global_scale=8.0):
    quantized = relay.quantize.quantize(mod, params)

data = np.random.uniform(-8, 8, size=data_shape).astype("float32")
scores = []
for network in (mod, quantized):
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(network, target="llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("data", data)
    module.run()
    logarithms = np.log(module.get_output(0, tvm.nd.empty(out_shape)).numpy())
    scores.append(logarithms - logarithms.mean())  # of a network that nobody trained, they are near
wanted, got = scores
print("RELATIVE", np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
