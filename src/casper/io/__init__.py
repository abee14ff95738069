"""CSV, Excel, Parquet, HDF5, long or wide, to and from a table; the look of a file is kept for the way back."""

from casper.io.tables import SUFFIXES, TableFormat, read_matrix, read_sensors, read_table, write_table

__all__ = ["SUFFIXES", "TableFormat", "read_matrix", "read_sensors", "read_table", "write_table"]
