"""Blocks written once must be read for ever, and written again the same by every implementation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from laconic import Frame, Lossless, kernels
from tests.cases import each
from tests.golden.cases import cases

HERE = Path(__file__).parent
MANIFEST = json.loads((HERE / "manifest.json").read_text())


def read(name):
    frame = Frame.parse((HERE / f"{name}.lcnc").read_bytes())
    x = torch.frombuffer(bytearray((HERE / f"{name}.input").read_bytes()), dtype=frame.dtype)
    return frame, x.view(MANIFEST[name]["shape"])


@pytest.fixture(params=kernels.available())
def backend(request, monkeypatch):
    monkeypatch.setenv(kernels.ENVIRONMENT, request.param)
    kernels.active.cache_clear()
    assert kernels.active().name == request.param
    yield
    kernels.active.cache_clear()


def test_every_case_has_its_golden_and_every_golden_its_case():
    assert {name: repr(codec) for name, (codec, _) in cases().items()} == {
        name: entry["codec"] for name, entry in MANIFEST.items()
    }
    assert {path.stem for path in HERE.glob("*.lcnc")} == set(MANIFEST)


@pytest.mark.usefixtures("backend")
@each("name", MANIFEST)
def test_a_golden_frame_decodes_to_the_same_bits(name):
    frame, _ = read(name)
    assert frame.decode().numpy().tobytes() == (HERE / f"{name}.output").read_bytes()


@pytest.mark.usefixtures("backend")
@each("name", MANIFEST)
def test_a_golden_input_encodes_to_the_same_bytes(name):
    frame, x = read(name)
    codec = cases()[name][0]
    assert torch.equal(codec.encode(x), frame.block)


def test_goldens_show_every_form_of_a_block_of_rows():
    forms = {int(frame.block[0]) for frame, _ in map(read, MANIFEST) if frame.wire_id in (1, 2)}
    assert forms == {0, 1, 2, 3, 4}


def test_goldens_show_every_form_of_a_lossless_block():
    forms = {int(frame.block[0]) for frame, _ in map(read, MANIFEST) if frame.wire_id == Lossless.wire_id}
    assert forms == {0, 1, 2, 3}
