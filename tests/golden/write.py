"""Write the golden blocks anew: ``python -m tests.golden.write``. For people, never for tests.

A golden is an input and the frame that the codecs made of it. If a change alters one, the format
has changed: say so in its document and in the changelog.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from laconic import Frame
from tests.golden.cases import cases

HERE = Path(__file__).parent


def main() -> None:
    torch.manual_seed(20240101)
    manifest = {}
    for name, (codec, x) in cases().items():
        (HERE / f"{name}.input").write_bytes(x.contiguous().numpy().tobytes())
        frame = Frame.of(codec, x)
        (HERE / f"{name}.lcnc").write_bytes(frame.to_bytes())
        (HERE / f"{name}.output").write_bytes(frame.decode().numpy().tobytes())
        manifest[name] = {"codec": repr(codec), "shape": list(x.shape)}
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
