"""What `casper check` tells about a table before anything is learned from it."""

from casper.check.findings import (
    GAP_LENGTHS,
    Suspicion,
    TableSummary,
    sentences,
    stand_ins,
    summarise,
    warn_of_stand_ins,
)

__all__ = ["GAP_LENGTHS", "Suspicion", "TableSummary", "sentences", "stand_ins", "summarise", "warn_of_stand_ins"]
