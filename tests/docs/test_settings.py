"""Settings that pages show are settings, and every setting of a run is in a guide."""

from __future__ import annotations

import re
from pathlib import Path

from laconic.config import Settings, load
from laconic.cost.topology import read_cluster
from laconic.plan.scenario import Scenario
from laconic.train.settings import RunSettings
from tests.cases import each

ROOT = Path(__file__).parents[2]
GUIDES = sorted(ROOT.glob("docs/guides/*.md"))
SHOWN = [
    (page.name, block)
    for page in GUIDES
    for block in re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
]


@each(("page", "block"), SHOWN)
def test_files_that_a_guide_shows_are_read(page, block, tmp_path):
    file = tmp_path / "shown.toml"
    file.write_text(block)
    if page == "placement.md":
        assert read_cluster(file)
    elif page == "simulate.md":
        assert load(file, Scenario)
    else:
        assert "[compression" in block
        assert load(file, RunSettings, ["data.kind=synthetic"])


def test_every_setting_of_a_run_is_in_a_guide():
    text = "\n".join(page.read_text() for page in GUIDES)
    names = [
        name
        for part in RunSettings.model_fields.values()
        if isinstance(part.annotation, type) and issubclass(part.annotation, Settings)
        for name in part.annotation.model_fields
    ]
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"`[^`]*\b{name}\b[^`]*`", text)] == []
