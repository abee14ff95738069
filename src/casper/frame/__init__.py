"""The only place that validates and normalises what a user hands in."""

from casper.frame.sensor_frame import SensorFrame, examine, from_arrays, match_sensors, sensor_list, to_frame

__all__ = ["SensorFrame", "examine", "from_arrays", "match_sensors", "sensor_list", "to_frame"]
