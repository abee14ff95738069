"""How far estimates may be off: error bars, learned from readings held back."""
