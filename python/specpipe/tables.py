"""Tables: columns with units, and descriptions from the definition."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Union

import h5py
import numpy as np
import numpy.typing as npt

from . import bridges, schema
from .errors import MissingBlock
from .values import text

Array = npt.NDArray[Any]


class Table:
    """A table of a product.

    ``t["VRAD"]`` is a column: numbers as an array, texts as an array of str. ``t[3]`` is a row, a dict.

    Attributes
    ----------
    array : structured array
        All rows as the file has them; texts are bytes.
    path : str
    """

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.path: str = dataset.name
        self.array: Array = dataset[...]
        units = dataset.attrs.get("column_units", ())
        self._units = [text(u) for u in units]
        item = schema.find(self.path)
        self._columns = item.columns if item else {}

    @property
    def columns(self) -> List[str]:
        """Names of the columns."""
        return list(self.array.dtype.names or ())

    @property
    def units(self) -> Dict[str, str]:
        """Unit of each column; empty for pure numbers and texts."""
        return dict(zip(self.columns, self._units + [""] * (len(self.columns) - len(self._units))))

    @property
    def descriptions(self) -> Dict[str, str]:
        """Meaning of the columns that the definition names."""
        return {n: self._columns[n].meaning for n in self.columns if n in self._columns}

    def __len__(self) -> int:
        return len(self.array)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        return (self.row(i) for i in range(len(self)))

    def column(self, name: str) -> Array:
        """A column, [nrow]; texts as str, numbers in the machine's byte order.

        Raises
        ------
        MissingBlock
            There is no such column.
        """
        if name not in self.columns:
            raise MissingBlock(f"{self.path}: there is no column {name}: it has {', '.join(self.columns)}")
        a = self.array[name]
        if a.dtype.kind in "SO":
            flat = [text(x).rstrip("\0 ") for x in a.reshape(-1)]
            return np.array(flat, dtype=str).reshape(a.shape)
        return np.asarray(a.astype(a.dtype.newbyteorder("=")))

    def row(self, i: int) -> Dict[str, Any]:
        """A row as a dict of Python's numbers and texts; arrays stay arrays."""
        values = {}
        for n in self.columns:
            v = self.array[n][i]
            values[n] = text(v).rstrip("\0 ") if isinstance(v, (bytes, str)) else v.item() if np.ndim(v) == 0 else v
        return values

    def __getitem__(self, key: Union[str, int]) -> Any:
        return self.column(key) if isinstance(key, str) else self.row(key)

    def to_astropy(self) -> Any:
        """An ``astropy.table.Table`` with units and descriptions."""
        return bridges.astropy_table(self)

    def __repr__(self) -> str:
        return f"<Table {self.path}, {len(self)} rows: {', '.join(self.columns)}>"
