"""The command line as a person uses it: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from laconic import BoundedRows, Frame
from tests.cli.forked import laconic


@pytest.fixture
def frame_file(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "x.lcnc"
    path.write_bytes(Frame.of(BoundedRows(0.02), torch.randn(100, 8)).to_bytes())
    return path


def test_help_lists_the_commands_and_loads_no_torch():
    script = "import sys; from laconic.cli import app; assert 'torch' not in sys.modules; app(['--help'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("info", "codec", "bench", "train", "tune"):
        assert command in done.stdout


def test_info_says_which_kernels_are_in_use():
    facts = json.loads(laconic("info", "--json", "-").stdout)
    assert facts["kernels_in_use"] in facts["kernels_available"]
    assert "scalar" in laconic("info", LACONIC_KERNELS="scalar").stdout


def test_forced_kernels_are_used():
    for name in ("scalar", "reference"):
        assert (
            json.loads(laconic("info", "--json", "-", LACONIC_KERNELS=name).stdout)["kernels_in_use"] == name
        )


def test_unknown_forced_kernels_are_an_error_with_the_known_ones():
    done = laconic("info", LACONIC_KERNELS="avx9000")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "laconic: LACONIC_KERNELS: no such kernels 'avx9000' (known: avx2, scalar, reference)"
    )


def test_inspect_explains_a_frame(frame_file):
    done = laconic("codec", "inspect", frame_file)
    assert done.returncode == 0, done.stderr
    for word in ("magic", "BoundedRows (1)", "entropy (3)", "step", "patches"):
        assert word in done.stdout
    fields = json.loads(laconic("codec", "inspect", frame_file, "--json", "-").stdout)
    assert sum(field["size"] for field in fields) == frame_file.stat().st_size


def test_errors_are_one_line_and_an_exit_code(tmp_path, frame_file):
    missing = laconic("codec", "inspect", tmp_path / "nothing")
    assert missing.returncode == 1
    assert missing.stderr.strip() == f"laconic: No such file or directory: {tmp_path / 'nothing'}"
    frame_file.write_bytes(frame_file.read_bytes()[:-1])
    broken = laconic("codec", "inspect", frame_file)
    assert broken.returncode == 1
    assert broken.stderr.startswith("laconic: length: expected")
    assert broken.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ("lab", "--hots", "2"),
        ("lab", "--hosts", "two"),
        ("lab", "--hosts", "0", "--", "true"),
        ("quantize", "run", "--objective", "fun"),
        ("train", "no.toml"),
    ],
)
def test_every_mistake_of_a_user_exits_with_2(wrong):
    done = laconic(*wrong)
    assert done.returncode == 2
    assert done.stderr


def test_version_is_the_package_version():
    from laconic import __version__

    assert laconic("--version").stdout.strip() == f"laconic {__version__}"


def test_a_result_file_that_cannot_be_written_is_an_error_before_the_run(tmp_path):
    done = laconic("bench", "codecs", "--json", tmp_path / "no" / "file.json")
    assert done.returncode == 2
    assert (
        done.stderr.strip() == f"laconic: --json: no folder '{tmp_path / 'no'}' to write into; make it first"
    )


def test_an_installed_wheel_says_where_benchmarks_are(tmp_path):
    done = laconic("bench", "codecs", "--quick", cwd=tmp_path, hidden="benchmarks")
    assert done.returncode == 2
    assert done.stderr.startswith("laconic: bench: no benchmarks here")
    assert done.stderr.count("\n") == 1


def test_benchmarks_answer_at_once():
    script = (
        "import sys; from benchmarks.__main__ import app; assert 'torch' not in sys.modules; app(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("codecs", "train", "switch", "adapt", "placement", "reduce", "hybrid", "serve"):
        assert name in done.stdout
