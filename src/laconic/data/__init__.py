"""Where samples come from: Parquet files (``parquet``) or a generator (``synthetic``).

Begin with ``source``, the interface that both fulfill, and ``open``, the settings. ``prepare``
turns raw logs, such as Criteo's (``criteo``), into a prepared folder (``prepared``) with
vocabularies (``vocabulary``). Reading files needs pyarrow (the extra ``data``).
"""

from laconic.data.open import DataSettings, ParquetSettings, open_source
from laconic.data.source import Categorical, Samples, Schema, Source
from laconic.data.synthetic import TERABYTE_ROWS, Synthetic, SyntheticSettings

__all__ = [
    "TERABYTE_ROWS",
    "Categorical",
    "DataSettings",
    "ParquetSettings",
    "Samples",
    "Schema",
    "Source",
    "Synthetic",
    "SyntheticSettings",
    "open_source",
]
