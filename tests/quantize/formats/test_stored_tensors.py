"""Tensors that are written piece by piece, in the bytes of safetensors."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import torch
from safetensors.torch import save_file

from laconic.quantize.formats import table_rows
from laconic.quantize.formats.stored_tensors import StoredTensor, write_tensors

TENSORS = {
    "tables.größe": torch.arange(35, dtype=torch.uint8).view(5, 7),
    "layers.a.weight": torch.randn(3, 5),
    "layers.a.bias": torch.randn(1),
    "layers.b.weight": torch.randn(4, 2).to(torch.bfloat16),
    "layers.c.weight": torch.arange(-3, 3, dtype=torch.int8).view(2, 3),
    'with "quotes"': torch.arange(4),
    "empty": torch.empty(0, dtype=torch.uint8),
    "layers.a": torch.randn(2, 6)[:, ::2],
}


def test_a_file_has_the_bytes_of_safetensors(tmp_path):
    save_file({name: tensor.contiguous() for name, tensor in TENSORS.items()}, tmp_path / "theirs")
    checksum = write_tensors(
        tmp_path / "ours", {name: StoredTensor.of(tensor) for name, tensor in TENSORS.items()}
    )
    written = (tmp_path / "ours").read_bytes()
    assert written == (tmp_path / "theirs").read_bytes()
    assert checksum == blake2b(written, digest_size=16).hexdigest()


def test_a_table_in_pieces_and_an_array_nobody_may_write_are_stored_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(table_rows, "PIECE_VALUES", 12)
    rows_RD, values = torch.randn(7, 4), np.arange(5)
    values.flags.writeable = False
    save_file(
        {"rows": rows_RD.view(torch.uint8), "values": torch.from_numpy(values.copy())}, tmp_path / "theirs"
    )
    stored = {
        "rows": StoredTensor.of_table(rows_RD),
        "values": StoredTensor.of_array(values, torch.int64),
    }
    write_tensors(tmp_path / "ours", stored)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
