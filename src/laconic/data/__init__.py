"""Where samples come from: files and a generator, each a source that any number of ranks reads alike.

Reading files needs pyarrow (the extra ``data``); generated samples do not.
"""

from laconic.data.open import DataSettings, ParquetSettings, SyntheticSettings, open_source
from laconic.data.source import Categorical, Samples, Schema, Source
from laconic.data.synthetic import TERABYTE_ROWS, Synthetic

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
