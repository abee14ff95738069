"""Speed and memory, side by side with what a user would pick instead.

python -m benchmarks.attention   one layer of causal attention: ours, an edge list, padded neighbours compiled
python -m benchmarks.training    the real training loop with each of them, and imputation
python -m benchmarks.page        docs/performance.md and its picture, from the result files

Run from the repository's root, with src on PYTHONPATH if the package is not installed.
"""

import os

# As the casper command does: threads that wait politely. Read when PyTorch is loaded, which is later than this.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
