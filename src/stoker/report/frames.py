"""Tables as pandas data frames. Needs pandas, of the extra `report`."""

from __future__ import annotations

from typing import Any

from stoker.core.errors import StokerError
from stoker.report.rows import series_of
from stoker.report.table import Table
from stoker.study.opened import Opened

try:
    import pandas
    from pandas import DataFrame
except ImportError:
    raise StokerError("data frames need pandas: pip install 'stoker[report]'") from None


def frame(table: Table) -> DataFrame:
    """A data frame with the same columns; cells that are unknown are missing values."""
    cells = {name: _plain(table.column(name)) for name in table.columns}
    return DataFrame(cells, columns=list(table.columns))


def progress(opened: Opened) -> DataFrame:
    """All series of all trials, a row for each value."""
    parts = []
    for now in opened.state.trials():
        for stage, found in series_of(opened, now.trial).items():
            for name, series in found.items():
                values = {
                    "trial": str(now.trial).removeprefix("1."),
                    "name": opened.trial(now.trial).name,
                    "stage": stage,
                    "series": name,
                    "step": list(series.steps),
                    "value": list(series.values),
                    "time": pandas.to_datetime(list(series.seconds), unit="s", utc=True),
                }
                parts.append(DataFrame(values))
    columns = ["trial", "name", "stage", "series", "step", "value", "time"]
    return pandas.concat(parts, ignore_index=True) if parts else DataFrame(columns=columns)


def _plain(cells: list[Any]) -> list[Any]:
    """Numbers that remember their spelling become plain ones, which pandas and its writers know."""
    return [float(cell) if isinstance(cell, float) else cell for cell in cells]
