"""The published imputation benchmarks, drawn, split and scaled exactly as in the literature and checked by hash."""

from casper.datasets._benchmarks import NAMES, Benchmark, load
from casper.datasets._checks import Check, verify
from casper.datasets._files import at_hand, data_folder

__all__ = ["NAMES", "Benchmark", "Check", "at_hand", "data_folder", "load", "verify"]
