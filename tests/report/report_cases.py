"""What the tests of the report's page share: a method with error bars that is fitted in no time, a look into a page."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from casper.baselines.linear import LinearImputer
from casper.frame import SensorFrame
from casper.intervals.error_bars import ErrorBars


class BandedLinear(LinearImputer):
    """Linear interpolation with intervals of one width: 2 above and below for one half, 4 for nine tenths."""

    @property
    def why_no_intervals(self) -> str | None:
        return None

    def error_bars(self, frame: SensorFrame, filled: np.ndarray, shares: Sequence[float]) -> ErrorBars:
        complete = np.where(frame.observed, frame.values, filled)
        width = {share: np.where(frame.observed, 0.0, 2.0 if share < 0.7 else 4.0) for share in shares}
        return ErrorBars(
            {share: complete - width[share] for share in shares},
            {share: complete + width[share] for share in shares},
            ~frame.observed & ~np.roll(frame.observed, 1, axis=0),
        )


def banded(table: pd.DataFrame) -> BandedLinear:
    return BandedLinear().fit(table)


def numbers_of(page: str) -> dict[str, Any]:
    """What the page's scripts unpack."""
    packed = re.search(r'<script type="text/plain" id="numbers">([^<]*)</script>', page)
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
