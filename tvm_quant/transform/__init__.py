"""The passes, in the order in which `tvm_quant.quantize` runs them. Each can be run by hand."""

from tvm_quant.transform.annotate import Annotate
from tvm_quant.transform.calibrate_activations import CalibrateActivations
from tvm_quant.transform.calibrate_weights import CalibrateWeights
from tvm_quant.transform.correct_bias import CorrectBias
from tvm_quant.transform.equalize import Equalize
from tvm_quant.transform.fit_accumulators import FitAccumulators
from tvm_quant.transform.match_scales import MatchScales
from tvm_quant.transform.prepare import Prepare
from tvm_quant.transform.profile import Profile
from tvm_quant.transform.realize import Realize
from tvm_quant.transform.round_bias import RoundBias
from tvm_quant.transform.round_weights import RoundWeights
from tvm_quant.transform.simulate import Simulate
from tvm_quant.transform.split_conversions import SplitConversions
from tvm_quant.transform.untie_scales import UntieScales

__all__ = [
    "Annotate",
    "CalibrateActivations",
    "CalibrateWeights",
    "CorrectBias",
    "Equalize",
    "FitAccumulators",
    "MatchScales",
    "Prepare",
    "Profile",
    "Realize",
    "RoundBias",
    "RoundWeights",
    "Simulate",
    "SplitConversions",
    "UntieScales",
]
