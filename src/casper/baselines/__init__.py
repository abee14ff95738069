"""Other ways to fill holes, one file per method, all behind the same `fit` and `impute`."""
