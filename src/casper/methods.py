"""Every imputer there is, by name; loaded when it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casper.config import benchmark_settings
from casper.contract import Imputer
from casper.datasets import REHEARSALS
from casper.errors import InputError

if TYPE_CHECKING:
    from casper.neural import NeuralImputer
    from casper.train import Accelerator

_PLACES = {
    "casper": "casper.imputer:Casper",
    "mean": "casper.baselines.mean:MeanImputer",
    "linear": "casper.baselines.linear:LinearImputer",
    "knn": "casper.baselines.knn:NeighbourMeanImputer",
    "mf": "casper.baselines.mf:MatrixFactorizationImputer",
    "mice": "casper.baselines.mice:ChainedEquationsImputer",
    "kriging": "casper.baselines.kriging:KrigingImputer",
    "var": "casper.baselines.var:VectorAutoregressionImputer",
    "rgain": "casper.baselines.rgain:RgainImputer",
    "brits": "casper.baselines.brits:BritsImputer",
    "saits": "casper.baselines.saits:SaitsImputer",
    "st-transformer": "casper.baselines.st_transformer:STTransformerImputer",
    "grin": "casper.baselines.grin:GrinImputer",
    "spin": "casper.baselines.spin:SpinImputer",
    "pogevon": "casper.baselines.pogevon:PogevonImputer",
    "csdi": "casper.baselines.csdi:CsdiImputer",
    "pristi": "casper.baselines.pristi:PristiImputer",
    "imputeformer": "casper.baselines.imputeformer:ImputeFormerImputer",
}


class _Methods(Mapping[str, type[Imputer]]):
    def __getitem__(self, name: str) -> type[Imputer]:
        if name not in _PLACES:
            raise InputError(f"there is no method {name!r}; choose one of {', '.join(_PLACES)}")
        module, _, imputer = _PLACES[name].partition(":")
        return getattr(importlib.import_module(module), imputer)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


METHODS: Mapping[str, type[Imputer]] = _Methods()


def make_imputer(name: str, **options: Any) -> Imputer:
    """An imputer that is not fitted yet. Those with a network take options: a seed, a device, any setting of theirs."""
    return METHODS[name](**options)


def has_network(name: str) -> bool:
    from casper.neural import NeuralImputer

    return issubclass(METHODS[name], NeuralImputer)


def settings_for(name: str, preset: str, benchmark: str) -> dict[str, Any]:
    """What a method with a network changes for one of the benchmarks, or for the rehearsal of one."""
    benchmark = REHEARSALS.get(benchmark, benchmark)
    if name == "casper":
        return benchmark_settings(preset, benchmark)
    from casper.neural import NeuralImputer

    method = METHODS[name]
    assert issubclass(method, NeuralImputer), "only these have settings"
    return dict(method.for_benchmarks.get(benchmark, {}))


def load_model(name: str | Path, *, device: Accelerator = "auto", progress: bool = False) -> NeuralImputer[Any, Any]:
    """A fitted model of whichever method: a folder made by `save_pretrained`, or shipped weights by name."""
    from casper import pretrained
    from casper.neural import NeuralImputer

    method = METHODS[pretrained.read(name).description["method"]]
    assert issubclass(method, NeuralImputer), "only these can be saved"
    return method.from_pretrained(name, device=device, progress=progress)
