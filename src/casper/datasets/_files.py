"""Where the benchmark files are, whether their bytes are the published ones, and how they are read."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError, MissingPackageError

FOLDER_VARIABLE = "CASPER_DATA"
HDF5_SUFFIX = ".h5"


@dataclass(frozen=True)
class DataFile:
    """A file name under which data are published, and what identifies the published bytes, if that is known."""

    name: str
    sha256: str | None = None
    git_blob: str | None = None


@dataclass(frozen=True)
class DataSource:
    """One thing to read: the files that may hold it, best first, and where to get them."""

    files: tuple[DataFile, ...]
    published: str
    hdf5_key: str | None = None


DCRNN = "the data links of https://github.com/liyaguang/DCRNN"
IMPUTEFORMER = "https://github.com/tongnie/ImputeFormer, folder experiments/tsl/.storage"
GRIN = "the data links of https://github.com/Graph-Machine-Learning-Group/grin"

METR_LA_OFFICIAL = "64784b76d6fb8ec9bff4b6decafb354da2bb37840468fdccee5044e511277c05"
METR_LA = DataSource(
    files=(
        DataFile("metr_la.parquet", sha256="5d6c5aa7eabf0cb17eb1ff3a95ab80613607b9d5cbff47fdfe611a456074408d"),
        DataFile("metr-la.h5", sha256=METR_LA_OFFICIAL),
        DataFile("metr_la.h5", sha256=METR_LA_OFFICIAL),
    ),
    published=DCRNN,
)
METR_LA_DISTANCES = DataSource(
    files=(
        DataFile("metr_la_distances.npy", sha256="8131da8a9f0d0dca8c4e0bfe21a3e5d48008b15a6e2787560d70eba9c0719656"),
    ),
    published=f"{IMPUTEFORMER}/MetrLA/metr_la_dist.npy",
)
PEMS_BAY_OFFICIAL = "65d69fb0a2323dba9867179eb7af47c8b814186bc459ff0a4937d21614153c8f"
PEMS_BAY = DataSource(
    files=(
        DataFile("pems-bay.h5", sha256=PEMS_BAY_OFFICIAL),
        DataFile("pems_bay.h5", sha256=PEMS_BAY_OFFICIAL),
        DataFile("pems_bay.parquet"),
    ),
    published=DCRNN,
)
PEMS_BAY_DISTANCES = DataSource(
    files=(
        DataFile("pems_bay_distances.npy", sha256="3b73762288945ae59bea956a945d73e75bd2d48ea243e4afda3bd30651c54eba"),
    ),
    published=f"{IMPUTEFORMER}/PemsBay/pems_bay_dist.npy",
)
AQI36 = DataSource(
    files=(DataFile("aqi36.parquet", sha256="46ce43c8ec127727e0df970a41196787ea1e86ec1d1fce11217b0b530b2ea0b7"),),
    published=f"{IMPUTEFORMER}/AirQuality/small36.h5, key pm25",
)
AQI36_HIDDEN = DataSource(
    files=(
        DataFile("aqi36_eval_mask.parquet", sha256="7890005eda4390515fd690d10f68bcc1f1e60891b47144c5168584667ff1a8f8"),
    ),
    published=f"{IMPUTEFORMER}/AirQuality/small36.h5, key eval_mask",
)
AQI = DataSource(
    files=(
        DataFile("full437.h5", git_blob="bc1ab60f09ce36ef73edc7f39d82bfe7f8c9db7a"),
        DataFile("aqi.parquet"),
    ),
    published=GRIN,
    hdf5_key="pm25",
)
AQI_DISTANCES = DataSource(
    files=(DataFile("aqi_distances.npy", sha256="81f4b504959e9779970cc76a5d7f12d1a9fad79c764f6fc5192a0fcb851602a4"),),
    published=f"{IMPUTEFORMER}/AirQuality/aqi_dist.npy",
)

SOURCES = {
    "aqi36": (AQI36, AQI36_HIDDEN, AQI_DISTANCES),
    "aqi": (AQI, AQI_DISTANCES),
    "metr-la-point": (METR_LA, METR_LA_DISTANCES),
    "metr-la-block": (METR_LA, METR_LA_DISTANCES),
    "pems-bay-point": (PEMS_BAY, PEMS_BAY_DISTANCES),
    "pems-bay-block": (PEMS_BAY, PEMS_BAY_DISTANCES),
}


def at_hand(*, data_dir: str | Path | None = None) -> dict[str, tuple[str, ...]]:
    """For every benchmark, what its folder lacks: a sentence for each file that is not there.

    Without any folder given, this one is looked at: asking which benchmarks there are needs no data.
    """
    folder = data_folder(data_dir) if data_dir or os.environ.get(FOLDER_VARIABLE) else Path()
    return {
        name: tuple(_lacking(folder, source) for source in sources if not _has(folder, source))
        for name, sources in SOURCES.items()
    }


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder of the benchmark files: the argument, else the environment variable CASPER_DATA."""
    given = data_dir or os.environ.get(FOLDER_VARIABLE)
    if not given:
        raise InputError(
            "no folder with benchmark data was given: pass --data-dir (data_dir=), "
            f"or set the environment variable {FOLDER_VARIABLE}"
        )
    folder = Path(given)
    if not folder.is_dir():
        raise InputError(f"the folder with benchmark data does not exist: {folder}")
    return folder


def find(folder: Path, source: DataSource) -> tuple[Path, DataFile]:
    """The first of a source's files that is there."""
    for file in source.files:
        if (folder / file.name).is_file():
            return folder / file.name, file
    raise InputError(f"{_lacking(folder, source)}, and put it there")


def _has(folder: Path, source: DataSource) -> bool:
    return any((folder / file.name).is_file() for file in source.files)


def _lacking(folder: Path, source: DataSource) -> str:
    names = " or ".join(file.name for file in source.files)
    return f"{names} is not in {folder}: get it from {source.published}"


def fingerprints(path: Path, file: DataFile) -> tuple[str, str, str]:
    """What kind of hash identifies a file ("" if none is known), what it should be, and what it is."""
    if file.sha256 is not None:
        with path.open("rb") as stream:
            return "sha256", file.sha256, hashlib.file_digest(stream, "sha256").hexdigest()
    if file.git_blob is not None:
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        return "git blob", file.git_blob, digest.hexdigest()
    return "", "", ""


def find_published(folder: Path, source: DataSource, *, trust: bool) -> Path:
    """The path of a source's file, refused if its bytes are not the published ones and the caller does not trust it."""
    path, file = find(folder, source)
    if trust:
        return path
    kind, expected, found = fingerprints(path, file)
    if not kind:
        raise InputError(
            f"no published checksum is known for {path}: pass trust=True if you trust it, "
            f"or put {source.files[0].name} beside it"
        )
    if found != expected:
        raise InputError(
            f"{path} is not the published file ({kind} {found}, not {expected}): get it again from "
            f"{source.published}, or pass trust=True to use it as it is"
        )
    return path


def read_table(folder: Path, source: DataSource, *, trust: bool) -> pd.DataFrame:
    """A table with a row per time and a column per sensor, its columns named by text."""
    path = find_published(folder, source, trust=trust)
    if path.suffix == HDF5_SUFFIX:
        if importlib.util.find_spec("tables") is None:
            raise MissingPackageError("tables", extra="hdf5", purpose=f"reading {path.name}")
        try:
            table = pd.read_hdf(path, key=source.hdf5_key)
        except (KeyError, ValueError, OSError) as error:
            raise InputError(f"{path} does not hold the expected table: {error}") from error
    else:
        table = pd.read_parquet(path)
    if not isinstance(table, pd.DataFrame) or not isinstance(table.index, pd.DatetimeIndex):
        raise InputError(f"{path} does not hold a table whose rows are labelled by time")
    if not table.index.is_monotonic_increasing or not table.index.is_unique:
        raise InputError(f"the times of {path} are not in order or repeat: sort its rows and keep one per time")
    return table.set_axis([str(column) for column in table.columns], axis=1)


def read_matrix(folder: Path, source: DataSource, *, trust: bool) -> NDArray[np.floating]:
    return np.load(find_published(folder, source, trust=trust), allow_pickle=False)
