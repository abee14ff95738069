"""Kriging in space and time, and what corrects it: beside CASPER's network, and a method of its own."""

from casper.kriging.network import KRIGING_TRAINING, KrigingConfig, KrigingNetwork
from casper.kriging.solving import conditional_mean

__all__ = ["KRIGING_TRAINING", "KrigingConfig", "KrigingNetwork", "conditional_mean"]
