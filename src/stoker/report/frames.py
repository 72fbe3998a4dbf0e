"""Tables as pandas data frames. Imports pandas, of the extra `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.core.errors import StokerError
from stoker.report.rows import series_of
from stoker.report.table import Table
from stoker.study.opened import Opened

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(table: Table) -> DataFrame:
    """A data frame with the same columns; cells that are unknown are missing values."""
    pandas = _pandas()
    return pandas.DataFrame(
        {name: _plain(table.column(name)) for name in table.columns}, columns=list(table.columns)
    )


def progress(opened: Opened) -> DataFrame:
    """All series of all trials, a row for each value."""
    pandas = _pandas()
    parts = []
    for now in opened.state.trials():
        for stage, found in series_of(opened, now.trial).items():
            for name, series in found.items():
                parts.append(
                    pandas.DataFrame(
                        {
                            "trial": str(now.trial).removeprefix("1."),
                            "name": opened.trial(now.trial).name,
                            "stage": stage,
                            "series": name,
                            "step": series.steps,
                            "value": series.values,
                            "time": pandas.to_datetime(list(series.seconds), unit="s", utc=True),
                        }
                    )
                )
    columns = ["trial", "name", "stage", "series", "step", "value", "time"]
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame(columns=columns)


def _plain(cells: list[Any]) -> list[Any]:
    """Numbers that remember their spelling become plain ones, which pandas and its writers know."""
    return [float(cell) if isinstance(cell, float) else cell for cell in cells]


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise StokerError("data frames need pandas: pip install 'stoker[report]'") from None
    return pandas
