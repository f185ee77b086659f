"""The README is a front door: short, with a picture, and its commands work as written."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from benchmarks.__main__ import app as benchmarks
from tests.distributed.ranks import free_port, server
from tests.warm import python

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PATIENCE_S = 120


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]


def test_it_is_short_and_has_a_picture_for_light_and_dark():
    assert len(README.split()) <= 800
    pictures = re.findall(r'src(?:set)?="([^"]+)"', README)
    assert [Path(picture).name for picture in pictures] == ["step-time-dark.svg", "step-time-light.svg"]


def test_the_pictures_are_what_their_script_draws(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "figures" / "draw.py"), str(tmp_path)], check=False
    )
    assert done.returncode == 0
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(drawn) == 2
    assert drawn == {name: (ROOT / "docs" / "figures" / name).read_text() for name in drawn}


def test_all_that_is_typed_is_known_to_these_tests():
    assert {shlex.split(command)[0] for command in COMMANDS} == {"make", "pip", "laconic", "torchrun"}


def test_targets_of_make_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [shlex.split(command)[1] for command in COMMANDS if command.startswith("make ")]
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)


def test_benchmarks_that_pages_name_exist():
    known = {command.name for command in benchmarks.registered_commands}
    named = {
        name for page in PAGES for name in re.findall(r"python -m benchmarks ([a-z]+)", page.read_text())
    }
    assert len(named) > 5
    assert named <= known


def test_the_install_line_resolves():
    (line,) = [command for command in COMMANDS if command.startswith("pip ")]
    program, verb, *what = shlex.split(line)
    dry = [sys.executable, "-m", program, verb, "--dry-run", "--no-deps", "--no-build-isolation", "--quiet"]
    done = subprocess.run([*dry, *what], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr


def test_links_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert broken == []


def _run_as_rank(code: str, environment: dict[str, str], rank: int) -> None:
    os.environ.update(environment, RANK=str(rank))
    exec(code, {})


def test_the_hook_of_the_readme_runs_on_two_ranks():
    (code,) = [block for block in blocks("python") if "register_ddp" in block]
    port = str(free_port())
    environment = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
    }
    run = partial(_run_as_rank, code, environment)
    ranks = [server().Process(target=run, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(PATIENCE_S)
    assert [rank.exitcode for rank in ranks] == [0, 0]


@pytest.mark.parametrize("page", ["README.md", "docs/guides/codecs.md", "docs/guides/own_loop.md"])
def test_other_snippets_run(page):
    snippets = [block for block in blocks("python", (ROOT / page).read_text()) if "register_ddp" not in block]
    assert snippets
    exec("\n".join(snippets), {})


def test_the_commands_run_one_after_the_other_as_written(tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name in ("laconic", "torchrun"):
        _write_warm_script(scripts / name)
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    commands = [command for command in COMMANDS if command.startswith(("laconic ", "torchrun "))]
    *others, serve = commands
    for command in others:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert serve.startswith("laconic serve ")
    with subprocess.Popen(shlex.split(serve), stdout=subprocess.DEVNULL) as server_process:
        try:
            assert _becomes_ready("http://127.0.0.1:8000/v2/health/ready", server_process)
        finally:
            server_process.send_signal(signal.SIGTERM)
        assert server_process.wait(PATIENCE_S) == 0


def _write_warm_script(path: Path) -> None:
    """What pip installs under this name, but started where torch is imported already."""
    (entry,) = entry_points(group="console_scripts", name=path.name)
    program = f"import sys; from {entry.module} import {entry.attr} as main; sys.exit(main())"
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*python(), "-c", program])} "$@"\n')
    path.chmod(0o755)


def _becomes_ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(0.1)
    return False
