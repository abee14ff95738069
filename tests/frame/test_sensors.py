"""Places in metres of a plane, as in UTM or a national grid; and which column of a list holds the ids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from casper.errors import InputError
from casper.frame.sensors import list_by, match_sensors, on_plane, region, sensor_list
from casper.graph import graph_from_coordinates
from casper.report.arrows import _plane
from casper.report.graph_pictures import graph_picture
from tests.report.test_graph_pictures import chain, draw, words

METRES = {"id": ["a", "b", "c"], "north": [6_151_000.0, 6_155_000.0, 6_151_000.0], "east": [589_000, 589_000, 592_000]}


def metres(north: str = "northing", east: str = "easting") -> pd.DataFrame:
    return pd.DataFrame(METRES).rename(columns={"north": north, "east": east})


@pytest.mark.parametrize("names", [("northing", "easting"), ("North", "East"), ("utm_y", "utm_x"), ("Y", "X")])
def test_distances_in_a_plane_are_those_of_the_metres(names: tuple[str, str]) -> None:
    places = match_sensors(sensor_list(metres(*names)), ["c", "a", "b"])
    assert on_plane(places), "checked twice, and chosen from"
    east, north = _plane(places, ("a", "b", "c"))
    np.testing.assert_allclose(north - north[0], [0, 4, 0], atol=1e-6)
    np.testing.assert_allclose(east - east[0], [0, 0, 3], atol=1e-3)
    graph = graph_from_coordinates(places, ids=["a", "b", "c"])
    assert "distances in a plane between 3 sensors" in graph.origin
    assert f"width {np.std([0, 4, 3, 4, 0, 5, 3, 5, 0]):.4g} km" in graph.origin
    assert region(places) == "sensors lie within 3 km from west to east and 4 km from south to north"


def test_x_and_y_that_may_be_degrees_are_degrees() -> None:
    places = sensor_list(pd.DataFrame({"id": ["a", "b"], "x": [10.0, 11.0], "y": [50.0, 51.0]}))
    assert not on_plane(places)
    assert places["latitude"].tolist() == [50, 51]


def test_degrees_are_taken_where_both_are_given() -> None:
    both = metres().assign(latitude=[50.0, 51.0, 52.0], longitude=[10.0, 11.0, 12.0])
    assert not on_plane(sensor_list(both))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (metres("latitude", "longitude"), "metres of a plane such as UTM's, call the columns easting and northing"),
        (metres().assign(easting=[1.0, 2.0, None]), "the easting of sensor 'c' is missing; give it in metres"),
        (metres().drop(columns="easting"), "(or easting and northing, in metres)"),
        (metres().assign(easting=[1.0, 2.0, 5e7]), "span 50,000 km: they are to be given in metres"),
    ],
)
def test_what_is_neither_degrees_nor_metres_is_refused(table: pd.DataFrame, says: str) -> None:
    with pytest.raises(InputError) as refused:
        sensor_list(table)
    assert says in str(refused.value)


def test_a_map_of_a_plane_is_in_km() -> None:
    figure = draw(graph_picture(chain(metres(), lag=1), metres(), title="Arrows"))
    told = words(figure)
    assert "km east of the middle" in told
    assert "degrees" not in told
    assert "| 0.8 |" in told, "round numbers of km"


# ---------------------------------------------------------------------- which column holds the ids


def stations(**columns: object) -> pd.DataFrame:
    degrees = {"latitude": [50.0, 51.0, 52.0], "longitude": [10.0, 11.0, 12.0], "height": [120.5, 80.0, 95.25]}
    return pd.DataFrame({**columns, **degrees})


@pytest.mark.parametrize("name", ["Sensor ID", "sensor-id", "station_code", "Code", "oseries", "Messstelle"])
def test_ids_are_found_under_many_names(name: str) -> None:
    assert sensor_list(stations(**{name: ["n1", "n2", "n3"]})).index.tolist() == ["n1", "n2", "n3"]


@pytest.mark.parametrize("wanted", [["303_CO", "9_CO"], ["Vail", "Apishapa"], ["ks", "ap"]])
def test_the_column_that_names_the_columns_of_the_table_holds_the_ids(wanted: list[str]) -> None:
    listed = stations(name=["Apishapa", "Loveland", "Vail"], code=["9_CO", "4_CO", "303_CO"], short=["ap", "lo", "ks"])
    for places in (listed, sensor_list(listed), sensor_list(listed).iloc[[0, 2]], listed.set_index("short")):
        assert match_sensors(places, wanted)["latitude"].tolist() == [52, 50]
        assert match_sensors(places, wanted).index.tolist() == wanted
    assert match_sensors(match_sensors(listed, wanted), wanted[:1]).index.tolist() == wanted[:1]
    assert list_by(listed, wanted)["latitude"].to_dict().items() >= {wanted[0]: 52, wanted[1]: 50}.items()
    assert len(list_by(listed, wanted)) == 3


def test_the_ids_that_did_not_match_are_told() -> None:
    listed = stations(name=["Apishapa", "Loveland", "Vail"], code=["9_CO", "4_CO", "303_CO"])
    with pytest.raises(InputError) as refused:
        match_sensors(listed, ["9_CO", "5_CO"])
    assert "lacks '5_CO': add a row" in str(refused.value)
    assert "(its ids, from its column 'code', are such as '9_CO')" in str(refused.value)
    with pytest.raises(InputError, match="from its column 'name', are such as 'Apishapa'"):
        match_sensors(listed, ["Vail", "Apishapa", "Denver"])


def test_neither_heights_nor_names_that_occur_twice_are_ids() -> None:
    twice = stations(region=["north", "north", "south"])
    with pytest.raises(InputError, match="needed is one of each: id: "):
        sensor_list(twice)
    assert sensor_list(twice.assign(number=[4, 5, 6])).index.tolist() == ["4", "5", "6"]
    with pytest.raises(InputError, match="lacks 'north'"):
        match_sensors(twice.assign(id=["a", "b", "c"]), ["north", "south"])


def test_whole_numbers_are_the_same_ids_with_decimals() -> None:
    assert match_sensors(stations(id=["4", "5", "11"]), ["11.0", "4.0"])["latitude"].tolist() == [52, 50]
    assert match_sensors(stations(id=["4.0", "4", "x.0"]), ["4", "4.0"])["latitude"].tolist() == [51, 50]
    with pytest.raises(InputError, match="lacks 'x'"):
        match_sensors(stations(id=["4.0", "4.5", "x.0"]), ["4", "x"])


def test_metres_stay_metres_under_other_ids() -> None:
    listed = sensor_list(metres().assign(code=["n1", "n2", "n3"]))
    assert on_plane(match_sensors(listed, ["n3", "n1"]))
    assert region(list_by(listed, ["n3"])) == "sensors lie within 3 km from west to east and 4 km from south to north"
