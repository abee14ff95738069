"""Put kriging beside the network of weights that come with the package; the network itself stays as it is.

python tools/add_kriging.py aqi36 --share 0.4

Kriging learns from what the network learned from, on the CPU, in a few minutes. Its share of a filled value is given
here, because the few validation days have easier gaps than the test months (see docs/recipe.md), and never chosen by
test cells. Error bars are calibrated anew. Then score the weights, which writes the figures the card is to carry:

casper evaluate aqi36 --model aqi36 --device cpu --calibrate --out results/aqi36-shipped-cpu.json
python tools/add_kriging.py aqi36 --scores results/aqi36-shipped-cpu.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from ship_weights import SCORES, WEIGHTS, save_among_weights

from casper.datasets import load
from casper.imputer import Casper
from casper.train import initialised, watched_starts
from casper.training.companion import fit_kriging, mix_in_kriging, shares_in_words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--share", type=float, help="how much of a filled value is kriging's")
    what.add_argument("--scores", type=Path, help="a result file of these weights, whose figures the card is to carry")
    options = parser.parse_args()
    if options.scores is not None:
        write_scores(WEIGHTS / options.dataset / "config.json", json.loads(options.scores.read_text()))
    else:
        add_kriging(options.dataset, share=options.share)


def add_kriging(dataset: str, *, share: float) -> None:
    model = Casper.from_pretrained(WEIGHTS / dataset, device="cpu", progress=True)
    assert model.network is not None
    alone = {name: weight for name, weight in model.network.state_dict().items() if "kriging" not in name}
    model.config = model.config.replace(kriging=True, kriging_share=share)
    benchmark = load(dataset)
    data, _, periods = model.read_benchmark(benchmark, model.graph)
    network = initialised(lambda: model.make_network(model.graph, clock=2 * len(periods)), seed=model.seed)
    network.load_state_dict({**network.state_dict(), **alone})
    with tempfile.TemporaryDirectory() as temporary:
        keep = model.training.keep
        fit_kriging(network, data, keep=keep, seed=model.seed, folder=Path(temporary), progress=True)
    validation = mix_in_kriging(network.eval(), data, watched_starts(data, model.training, model.config.window))
    model.network = network
    model.calibrate_on(benchmark)
    model.card = {
        **model.card,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "validation_mae": validation,
        "share_of_kriging": shares_in_words(network),
        "kriging": f"put beside the network afterwards: python tools/add_kriging.py {dataset} --share {share:g}",
    }
    size = save_among_weights(model, dataset)
    print(f"{dataset}: validation {validation:.3f}, {size:,} bytes")  # noqa: T201


def write_scores(path: Path, run: dict[str, Any]) -> None:
    described = json.loads(path.read_text())
    described["card"]["test"] = {name: run[name] for name in SCORES}
    path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
