"""Train the embedded network and write the files that `tvm_quant.demo` reads.

    pip install -r requirements.txt        # torch and scikit-learn serve this script alone
    python scripts/train_digits.py         # one minute on two cores

Writes tvm_quant/demo/digits.onnx and digits.npz. The data are scikit-learn's `load_digits`: 1797
images of 8 x 8 pixels with values 0 to 16, in the order in which the writers came (UCI "Optical
Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, CC BY 4.0). The last 600 are held
out, so that the network is tested on hands it has not seen.

The network holds on a small scale what makes larger ones hard to quantize: batch norm in its own
nodes before and after which something stands, ReLU6, residual sums with and without an activation,
depthwise convolutions, a pooled head. The graph is written node by node rather than exported, so
that no exporter folds these away.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn

DEMO = Path(__file__).parents[1] / "tvm_quant" / "demo"
HELD_OUT = 600
CALIBRATION = 256
WHITE = 16.0  # largest pixel value


class ConvNorm(nn.Sequential):
    """Convolution without bias, batch norm, and perhaps ReLU6."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride=1, groups=1, relu=True):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), *([nn.ReLU6()] if relu else []))


class Residual(nn.Module):
    """Two 3 x 3 convolutions around which the input is carried, as in ResNet."""

    def __init__(self, channels: int):
        super().__init__()
        self.first = ConvNorm(channels, channels, 3)
        self.second = ConvNorm(channels, channels, 3, relu=False)
        self.relu = nn.ReLU6()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(x + self.second(self.first(x)))


class Inverted(nn.Module):
    """Expand, depthwise, project; the sum has no activation, as in MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int):
        super().__init__()
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden, 1)
        self.depthwise = ConvNorm(hidden, hidden, 3, stride, groups=hidden)
        self.project = ConvNorm(hidden, outputs, 1, relu=False)
        self.carries = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.carries else y


class Digits(nn.Module):
    """1 x 8 x 8 pixels in [0, 1] to ten logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(1, 24, 3)
        self.block1 = Residual(24)
        self.block2 = Inverted(24, 40, 3, stride=2)
        self.block3 = Inverted(40, 40, 3, stride=1)
        self.block4 = Inverted(40, 64, 3, stride=2)
        self.head = ConvNorm(64, 128, 1)
        self.classifier = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block4(self.block3(self.block2(self.block1(self.stem(x)))))
        return self.classifier(self.head(x).mean((2, 3)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    digits = load_digits()
    images, labels = digits.images.astype("uint8")[:, None], digits.target.astype("uint8")
    torch.manual_seed(args.seed)
    network = Digits()
    train(network, images[:-HELD_OUT], labels[:-HELD_OUT], args.epochs)

    right = predict(network, images[-HELD_OUT:]) == labels[-HELD_OUT:]
    print(f"held-out accuracy: {right.mean():.2%} of {HELD_OUT}")
    write_model(network, DEMO / "digits.onnx")
    chosen = np.random.default_rng(args.seed).permutation(len(images) - HELD_OUT)[:CALIBRATION]
    np.savez_compressed(
        DEMO / "digits.npz",
        calibration_images=images[chosen],
        calibration_labels=labels[chosen],
        evaluation_images=images[-HELD_OUT:],
        evaluation_labels=labels[-HELD_OUT:],
    )
    for name in ("digits.onnx", "digits.npz"):
        print(f"{name}: {(DEMO / name).stat().st_size / 1000:.0f} kB")


def train(network: nn.Module, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """AdamW with one cycle of the learning rate, on images shifted, turned and scaled a little."""
    x, y = torch.from_numpy(images).float() / WHITE, torch.from_numpy(labels).long()
    batch = 64
    steps = epochs * (len(x) // batch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    network.train()
    for epoch in range(epochs):
        total = 0.0
        for picked in torch.randperm(len(x)).split(batch)[: len(x) // batch]:
            loss = loss_of(network(distort(x[picked])), y[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {total * batch / len(x):.3f}")
    network.eval()


def distort(x: torch.Tensor) -> torch.Tensor:
    """A random small affine map per image, and some noise."""
    n = len(x)
    angle = (torch.rand(n) - 0.5) * 0.5
    scale = 1 + (torch.rand(2, n) - 0.5) * 0.3
    shear = (torch.rand(n) - 0.5) * 0.4
    move = (torch.rand(2, n) - 0.5) * 0.4
    cos, sin = torch.cos(angle), torch.sin(angle)
    theta = torch.stack(
        [
            torch.stack([cos * scale[0], -sin * scale[1] + shear, move[0]], 1),
            torch.stack([sin * scale[0], cos * scale[1], move[1]], 1),
        ],
        1,
    )
    grid = nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
    moved = nn.functional.grid_sample(x, grid, align_corners=False)
    return (moved + 0.03 * torch.randn_like(moved)).clamp(0, 1)


@torch.no_grad()
def predict(network: nn.Module, images: np.ndarray) -> np.ndarray:
    return network(torch.from_numpy(images).float() / WHITE).argmax(1).numpy()


def write_model(network: Digits, path: Path) -> None:
    """Write `network` as ONNX; the batch is symbolic, the nodes bear the modules' names."""
    graph = _Graph()
    y = graph.conv_norm("stem", network.stem, "image")
    y = graph.residual("block1", network.block1, y)
    for name in ("block2", "block3", "block4"):
        y = graph.inverted(name, getattr(network, name), y)
    y = graph.conv_norm("head", network.head, y)
    y = graph.node("pool", "GlobalAveragePool", [y])
    y = graph.node("flatten", "Flatten", [y], axis=1)
    classifier = network.classifier
    weight = graph.constant("classifier.weight", classifier.weight)
    bias = graph.constant("classifier.bias", classifier.bias)
    graph.node("classifier", "Gemm", [y, weight, bias], output="logits", transB=1)
    model = graph.finish()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


@dataclass
class _Graph:
    """Collects nodes and constants; each method returns the name of the tensor it made."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def constant(self, name: str, value: torch.Tensor | float) -> str:
        array = np.asarray(torch.as_tensor(value).detach().numpy(), "float32")
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def node(self, name: str, kind: str, inputs: list[str], output: str = "", **attrs) -> str:
        output = output or f"{name}.out"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attrs))
        return output

    def relu6(self, name: str, x: str) -> str:
        low, high = self.constant("zero", 0.0), self.constant("six", 6.0)
        return self.node(name, "Clip", [x, low, high])

    def conv_norm(self, name: str, layer: ConvNorm, x: str) -> str:
        conv, norm = layer[0], layer[1]
        pad = conv.padding[0]
        weight = self.constant(f"{name}.conv.weight", conv.weight)
        y = self.node(
            f"{name}.conv",
            "Conv",
            [x, weight],
            kernel_shape=list(conv.kernel_size),
            strides=list(conv.stride),
            pads=[pad] * 4,
            group=conv.groups,
        )
        fields = ("weight", "bias", "running_mean", "running_var")
        values = [self.constant(f"{name}.norm.{f}", getattr(norm, f)) for f in fields]
        y = self.node(f"{name}.norm", "BatchNormalization", [y, *values], epsilon=norm.eps)
        return self.relu6(f"{name}.relu", y) if len(layer) == 3 else y

    def residual(self, name: str, block: Residual, x: str) -> str:
        y = self.conv_norm(f"{name}.first", block.first, x)
        y = self.conv_norm(f"{name}.second", block.second, y)
        return self.relu6(f"{name}.relu", self.node(f"{name}.add", "Add", [x, y]))

    def inverted(self, name: str, block: Inverted, x: str) -> str:
        y = self.conv_norm(f"{name}.expand", block.expand, x)
        y = self.conv_norm(f"{name}.depthwise", block.depthwise, y)
        y = self.conv_norm(f"{name}.project", block.project, y)
        return self.node(f"{name}.add", "Add", [x, y]) if block.carries else y

    def finish(self) -> onnx.ModelProto:
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])
        graph = helper.make_graph(
            self.nodes, "digits", [image], [logits], list(self.constants.values())
        )
        opsets = [helper.make_opsetid("", 18)]
        return helper.make_model(
            graph, producer_name="tvm_quant", opset_imports=opsets, ir_version=9
        )


if __name__ == "__main__":
    main()
