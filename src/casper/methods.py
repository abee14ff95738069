"""Every imputer there is, by name."""

from __future__ import annotations

from typing import Any

from casper.baselines.knn import NeighbourMeanImputer
from casper.baselines.linear import LinearImputer
from casper.baselines.mean import MeanImputer
from casper.contract import Imputer
from casper.errors import InputError
from casper.imputer import Casper

METHODS: dict[str, type[Imputer]] = {
    method.name: method for method in (Casper, MeanImputer, LinearImputer, NeighbourMeanImputer)
}


def make_imputer(name: str, **options: Any) -> Imputer:
    """An imputer that is not fitted yet. Only CASPER takes options."""
    if name not in METHODS:
        raise InputError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name](**options)
