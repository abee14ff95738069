"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from casper.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from casper.contract import Imputer
    from casper.filled import Filled
    from casper.frame import SensorFrame
    from casper.io import TableFormat


class PresetName(StrEnum):
    fast = "fast"
    paper = "paper"
    best = "best"


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Layout(StrEnum):
    auto = "auto"
    wide = "wide"
    long = "long"


Table = Annotated[
    Path, typer.Argument(help="CSV, Excel, Parquet or HDF5: a row per time, a column per sensor; or long.")
]
Sensors = Annotated[
    Path | None,
    typer.Option(
        "--sensors", help="File with id, latitude, longitude of every sensor, or easting and northing in metres."
    ),
]
Distances = Annotated[Path | None, typer.Option(help="Matrix of distances between sensors instead (rows: from).")]
Adjacency = Annotated[Path | None, typer.Option(help="Matrix of weights between sensors instead (rows: from).")]
Freq = Annotated[str | None, typer.Option(help="Time step, such as 5min or 1h, if the stamps are irregular.")]
Timezone = Annotated[str | None, typer.Option(help="Zone of stamps that carry none, such as Europe/Berlin.")]
MissingValue = Annotated[
    list[float] | None, typer.Option(help="A number that means 'missing', such as -999. Repeatable.")
]
LayoutOption = Annotated[Layout, typer.Option(help="Wide (a column per sensor) or long (id, time, value).")]
TimeColumn = Annotated[str | None, typer.Option(help="Name of the time column.")]
IdColumn = Annotated[str | None, typer.Option(help="Long tables: name of the sensor column.")]
ValueColumn = Annotated[str | None, typer.Option(help="Long tables: name of the value column.")]
IgnoreColumn = Annotated[
    list[str] | None, typer.Option(help="A column that holds no readings, such as notes. Repeatable.")
]
Key = Annotated[str | None, typer.Option(help="HDF5: which table of the file. Excel: which sheet.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
Preset = Annotated[PresetName, typer.Option(help="fast: minutes on a laptop; paper: the paper's; best: ours.")]
Seed = Annotated[int, typer.Option(help="Same seed, same machine: same result.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto takes a GPU if there is one.")]
Devices = Annotated[int, typer.Option(help="How many GPUs, or processes on a CPU.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Change a setting: --set window=48. Repeatable.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="JSON file of settings, as --set takes them.")]
Trust = Annotated[bool, typer.Option("--trust", help="Use benchmark files whose bytes are not the published ones.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the benchmark files; otherwise CASPER_DATA.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no notes; warnings and results stay.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]

_ERROR_BAR_SUFFIXES = (".csv", ".parquet")
_OPTIONS_OF_THEIR_OWN = {
    "preset": "--preset",
    "seed": "--seed",
    "device": "--device",
    "devices": "--devices",
    "progress": "--quiet",
}


def read_file(
    path: Path,
    layout: Layout,
    time_column: str | None,
    id_column: str | None,
    value_column: str | None,
    ignore_columns: list[str] | None,
    key: str | None,
    *,
    problems: list[str] | None = None,
) -> tuple[pd.DataFrame, TableFormat]:
    from casper.io import read_table

    return read_table(
        path,
        layout=layout.value,
        time_column=time_column,
        id_column=id_column,
        value_column=value_column,
        ignore_columns=tuple(ignore_columns or ()),
        key=key,
        problems=problems,
    )


def graph_inputs(
    ids: list[str], sensors: Path | None, distances: Path | None, adjacency: Path | None
) -> dict[str, Any]:
    from casper.frame.sensors import match_sensors
    from casper.io import read_matrix, read_sensors

    return {
        "sensors": None if sensors is None else match_sensors(read_sensors(sensors), ids),
        "distances": None if distances is None else read_matrix(distances, sensors=ids),
        "adjacency": None if adjacency is None else read_matrix(adjacency, sensors=ids),
    }


def fit_table(
    imputer: Imputer,
    table: pd.DataFrame,
    sensors: Path | None,
    distances: Path | None,
    adjacency: Path | None,
    freq: str | None,
    timezone: str | None,
    missing_values: list[float] | None,
) -> SensorFrame:
    """The frame is the table as the imputer reads it."""
    inputs = graph_inputs([str(name) for name in table.columns], sensors, distances, adjacency)
    as_read: dict[str, Any] = {"freq": freq, "timezone": timezone, "missing_values": tuple(missing_values or ())}
    return imputer.fit(table, **inputs, **as_read).to_frame(table, **as_read)


def method_options(
    method: str,
    *,
    preset: PresetName,
    seed: int,
    device: Device,
    progress: bool,
    settings: list[str] | None,
    config: Path | None = None,
    benchmark: str | None = None,
) -> dict[str, Any]:
    """What a method is made with. Only those with a network have a seed and settings, only CASPER has presets."""
    from casper.methods import has_network, settings_for

    if not has_network(method):
        refuse_settings(settings, beside=f"--method {method}")
        return {}
    options: dict[str, Any] = {"seed": seed, "device": device.value, "progress": progress}
    if method == "casper":
        options["preset"] = preset.value
    for_benchmark = {} if benchmark is None else settings_for(method, preset.value, benchmark)
    return {**options, **for_benchmark, **chosen_settings(settings, config)}


# As Python writes them, which is how the settings are listed.
_AS_JSON = {"True": "true", "False": "false", "None": "null"}


def chosen_settings(pairs: list[str] | None, config: Path | None) -> dict[str, Any]:
    """Settings from a JSON file and from name=value pairs, the pairs winning."""
    settings: Any = {}
    if config is not None:
        try:
            settings = json.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{config} cannot be read as JSON settings: {error}") from error
        if not isinstance(settings, dict):
            raise InputError(f'{config} must hold an object such as {{"window": 48}}')
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set takes name=value, not {pair!r}")
        try:
            settings[name] = json.loads(_AS_JSON.get(text, text))
        except ValueError:
            settings[name] = text  # plain words such as key or sensor
    for name, option in _OPTIONS_OF_THEIR_OWN.items():
        if name in settings:
            raise InputError(f"{name} is no setting but has an option of its own: use {option}")
    return settings


def refuse_settings(settings: list[str] | None, *, beside: str) -> None:
    """What was given must not be ignored silently."""
    if settings:
        raise InputError(f"--set cannot be used together with {beside}: it says how CASPER is fitted")


def refuse_output(out: Path, *, force: bool) -> None:
    """Whatever would keep the filled table from being written is told before the work is done, not after it."""
    from casper.files import refuse_overwriting
    from casper.io import SUFFIXES

    if out.is_dir():
        raise InputError(f"{out} is a folder: give the name of a file in it")
    if Path(out.name.lower().removesuffix(".gz")).suffix not in SUFFIXES:
        raise InputError(f"{out.name}: files of this kind are not known; use one that ends in {', '.join(SUFFIXES)}")
    refuse_overwriting(out, force=force)


def training_folder(out: Path, *, resume: bool, force: bool) -> Path:
    """Where checkpoints live while the model is not finished; refuses to forget or to invent an unfinished training."""
    work = out.with_name(out.name + ".training")
    if work.exists() and not resume and not force:
        raise InputError(f"{work} holds an unfinished training: continue it with --resume or discard it with --force")
    if resume and not work.exists():
        raise InputError(f"there is no unfinished training in {work}; run without --resume")
    return work


@contextlib.contextmanager
def training_in(work: Path, *, resume: bool) -> Generator[None]:
    """An earlier training is discarded unless it is resumed; a failure leaves nothing but what can be resumed."""
    from casper.training.keeper import CHECKPOINT

    if not resume:
        shutil.rmtree(work, ignore_errors=True)
    try:
        yield
    except BaseException:
        if not any(work.rglob(CHECKPOINT)):
            shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work)


def interval_shares(text: str) -> tuple[float, ...]:
    """What --intervals says: shares, separated by commas."""
    from casper.intervals.calibration import check_share

    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--intervals takes shares such as 0.5,0.9; not {text!r}") from None
    for share in shares:
        check_share(share)
    return shares


def refuse_error_bars(path: Path, *, force: bool) -> None:
    """Before any work is done."""
    from casper.files import refuse_overwriting

    if path.suffix.lower() not in _ERROR_BAR_SUFFIXES:
        raise InputError(f"{path}: error bars are written as {' or '.join(_ERROR_BAR_SUFFIXES)}")
    refuse_overwriting(path, force=force)


def write_error_bars(filled: Filled, path: Path, *, like: TableFormat) -> None:
    """In a text file stamps, marks and digits are those of the table, which had the look `like`."""
    from dataclasses import replace

    from casper.files import atomic
    from casper.io.digits import decimals_of, round_estimates
    from casper.io.textfile import TextStyle, write_text

    long = filled.to_long()
    with atomic(path) as temporary:
        if path.suffix.lower() == ".parquet":
            long.to_parquet(temporary)
            return
        holes = ~filled.observed.to_numpy()
        rows, columns = holes.nonzero()
        decimals = decimals_of(filled.table, holes)[columns]
        for name in long.columns.difference(["time", "sensor", "flagged"]):
            long[name] = round_estimates(long[name].to_numpy(), decimals)
        style = TextStyle()
        if like.suffix.removesuffix(".gz") == path.suffix.lower() and filled.table.index.equals(like.index):
            style = replace(like.style, titles=())
            long["time"] = like.stamp_texts(rows).to_numpy()
        write_text(long, temporary, style, whole=frozenset(), with_index=False, gzipped=False)
