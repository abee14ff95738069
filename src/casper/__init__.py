"""CASPER fills the holes in sensor-network tables and shows the sparse causal graph it drew on.

from casper import Casper
filled = Casper(preset="fast", seed=0).fit_transform(table, sensors=sensors)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casper.causal import CausalGraph
    from casper.discovery import discover
    from casper.errors import InputError
    from casper.imputer import Casper
    from casper.methods import make_imputer

__version__ = "0.1.0"
__all__ = ["Casper", "CausalGraph", "InputError", "__version__", "discover", "make_imputer"]

# Imported when first used: `import casper` stays instant although PyTorch is not.
_HOMES = {
    "Casper": "casper.imputer",
    "CausalGraph": "casper.causal",
    "discover": "casper.discovery",
    "InputError": "casper.errors",
    "make_imputer": "casper.methods",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'casper' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
