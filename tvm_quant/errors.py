"""Every error a user can cause, with its usual cause and cure.

All derive from `TvmQuantError`, so that a program can catch them in one place and the command line
can print them in one line. A message names the tensor or layer, what was seen, what was expected
and what to do next.
"""

from __future__ import annotations


class TvmQuantError(Exception):
    """Base of all errors raised on purpose by tvm_quant."""


class PinError(TvmQuantError, ImportError):
    """The installed apache-tvm or apache-tvm-ffi is one with which this package cannot work.

    Cause: another package or a plain `pip install apache-tvm` upgraded apache-tvm-ffi.
    Cure: the pip command in the message.
    """


class ConfigError(TvmQuantError, ValueError):
    """A configuration that contradicts itself, the model, or the hardware row.

    Cause: an unknown field, a value outside its range, a layer pattern that matches nothing.
    Cure: the message lists the valid names or the allowed range.
    """


class DatasetError(TvmQuantError, ValueError):
    """Calibration or evaluation data that does not fit the model.

    Cause: wrong input names, shapes, dtypes, NaN or Inf, no samples, all zeros.
    Cure: check the preprocessing; `on_bad="skip"` leaves out batches with NaN or Inf.
    """


class CalibrationError(TvmQuantError, ValueError):
    """No usable range for a quantizer.

    Cause: the tensor was NaN, Inf or constant zero in every sample, or it was never profiled.
    Cure: check the data, or keep the layer in float with `skip`.
    """


class FrontendError(TvmQuantError, ValueError):
    """A model that no front end can read, or that holds an operator nobody converts."""


class UnsupportedError(TvmQuantError, NotImplementedError):
    """A valid request that tvm_quant does not implement."""


class ArtifactError(TvmQuantError, ValueError):
    """A `.tvmq` or statistics file that is damaged, foreign or from a newer version."""


class BackendError(TvmQuantError, RuntimeError):
    """A target that is unknown, or a module that cannot be compiled or run for it."""


class IRContractError(TvmQuantError, ValueError):
    """A module that a pass cannot take because an earlier pass has not run.

    Cause: passes run by hand in another order than `tvm_quant.quantize` does.
    Cure: the message names the pass that has to come first.
    """
