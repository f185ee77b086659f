"""Recommendation models in plain torch: ``DLRM`` and ``DCNv2``.

They take embeddings that are already looked up and pooled. ``model`` has the interface.
"""

from laconic.models.dcn_v2 import DCNv2
from laconic.models.dlrm import DLRM
from laconic.models.model import Model

__all__ = ["DLRM", "DCNv2", "Model"]
