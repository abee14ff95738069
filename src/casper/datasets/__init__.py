"""The published imputation benchmarks, drawn, split and scaled exactly as in the literature and checked by hash."""

from casper.datasets._benchmarks import AQI36_REHEARSAL, NAMES, REHEARSALS, Benchmark, Protocol, load
from casper.datasets._checks import Check, verify
from casper.datasets._dream3 import DREAM3_NAMES, GeneNetwork, load_dream3
from casper.datasets._files import at_hand, data_folder

__all__ = [
    "AQI36_REHEARSAL",
    "DREAM3_NAMES",
    "NAMES",
    "REHEARSALS",
    "Benchmark",
    "Check",
    "GeneNetwork",
    "Protocol",
    "at_hand",
    "data_folder",
    "load",
    "load_dream3",
    "verify",
]
