"""Checkpoints: resumed runs equal uninterrupted ones, any number of ranks loads them, damage is named."""

from __future__ import annotations

import json
import shutil
from hashlib import blake2b

import pytest
import torch

from laconic.config import load
from laconic.data import open_source
from laconic.errors import FormatError, PlanError
from laconic.train import run as run_module
from laconic.train.checkpoint import Position, load_checkpoint, newest_checkpoint, save_checkpoint
from laconic.train.checkpoint_files import SavedFiles
from laconic.train.ranks import Ranks
from laconic.train.run import run
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer
from tests.distributed.training import start, train, write_settings

ALONE = Ranks(0, 1)


def settings_of(folder, *overrides, samples=500):
    return load(write_settings(folder, samples=samples), RunSettings, overrides=overrides)


def trainer_of(settings):
    return Trainer(settings, open_source(settings.data).schema, ALONE)


def checkpoint(folder, step):
    return folder / "checkpoints" / f"step-{step:08d}"


def whole_tables(folder):
    """Rows, states and noise of whole tables, put together from what the ranks saved."""
    parts: dict[str, list[dict]] = {}
    for file in sorted(folder.glob("tables-*.pt")):
        for name, part in torch.load(file, weights_only=True).items():
            parts.setdefault(name, []).append(part)
    tables = {}
    for name, pieces in parts.items():
        rows = sum(len(piece["weight"]) for piece in pieces)
        for kind in ("weight", "state", "noise"):
            like = pieces[0]["weight" if kind == "weight" else "state"]
            whole = torch.full((rows, *like.shape[1:]), torch.nan)
            for piece in pieces:  # a part without noise says nothing of it
                whole[piece["first"] :: piece["stride"]] = (
                    piece.get("noise", 0.0) if kind == "noise" else piece[kind]
                )
            assert not whole.isnan().any()
            tables[f"{name}.{kind}"] = whole
    return tables


def agreed_scales(folder):
    """What all ranks had agreed on of each of those that saved."""
    saved = [torch.load(file, weights_only=True) for file in sorted(folder.glob("bounds-*.pt"))]
    assert saved
    return [state["scales"]["agreed"] for states in saved for state in states]


def leaves(value, name=""):
    """All tensors and numbers of a nested value, by their place."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in leaves(item, f"{name}/{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for key, item in enumerate(value) for k, v in leaves(item, f"{name}/{key}").items()}
    return {name: value}


def assert_equal(first, second):
    first, second = leaves(first), leaves(second)
    assert first.keys() == second.keys()
    for name, value in first.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, second[name]), name
        else:
            assert value == second[name], name


def assert_same_checkpoint(first, second):
    names = sorted(path.name for path in first.glob("*.pt"))
    assert names == sorted(path.name for path in second.glob("*.pt"))
    for name in names:
        assert_equal(
            torch.load(first / name, weights_only=True), torch.load(second / name, weights_only=True)
        )
    manifests = [json.loads((path / "manifest.json").read_text()) for path in (first, second)]
    assert manifests[0]["position"] == manifests[1]["position"]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, ranks):
    """Bounded exchange with dither, Adagrad, a short last batch, evaluations in between, two epochs."""
    samples = 9 * 16 * ranks - 5
    straight, parts = (write_settings(tmp_path, samples=samples, name=name) for name in ("one", "two"))
    epochs = ("--set", "train.epochs=2")
    train(ranks, tmp_path / "a", str(straight), *epochs)
    train(ranks, tmp_path / "b", str(parts), *epochs, "--set", "train.steps=8")
    train(ranks, tmp_path / "c", str(parts), *epochs, "--resume")
    assert_same_checkpoint(checkpoint(tmp_path / "one", 18), checkpoint(tmp_path / "two", 18))
    evaluations = [
        json.loads(line)["auc"]
        for name in ("one", "two")
        for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1:]
    ]
    assert evaluations[0] == evaluations[1]


def test_any_number_of_ranks_goes_on_with_what_another_number_saved(tmp_path):
    """3 -> 2 -> 1 -> 3, some steps each; the last one ends when every sample of the epoch was seen."""
    samples = 280
    settings = str(write_settings(tmp_path, samples=samples))
    folder = tmp_path / "run" / "checkpoints"
    train(3, tmp_path / "first", settings, "--set", "train.steps=2")
    for stage, (ranks, steps) in enumerate([(2, 4), (1, 7), (3, 1000)]):
        before = newest_checkpoint(folder)
        again = _SaveAgain(tmp_path / f"loaded-{stage}")
        words = [settings, "--resume", "--set", f"train.steps={steps}", "--set", "train.epochs=1"]
        kept = tmp_path / f"before-{stage}"
        shutil.copytree(before, kept)  # the run removes old ones
        for rank in start(ranks, tmp_path / f"go-on-{stage}", words, sabotage=again):
            assert rank.wait() == 0, rank.errors
            assert rank.errors == []
        assert_equal(whole_tables(kept), whole_tables(again.folder / before.name))
        scales = [*agreed_scales(kept), *agreed_scales(again.folder / before.name)]
        assert scales == scales[:1] * len(scales)
    _verifies_what_it_reads(tmp_path / "before-0", "tables-1-of-3.pt")
    places = [
        json.loads((path / "manifest.json").read_text())["position"] for path in sorted(folder.iterdir())
    ]
    # 2 steps to 96, 2 of 32 to 160, 3 of 16 to 208; batches of 48 then end at 240, 280
    assert [(place["step"], place["sample"]) for place in places] == [(7, 208), (9, samples)]


def _verifies_what_it_reads(path, own):
    """Damage the files of other ranks: whoever does not read them does not notice."""
    for file in path.glob("tables-*.pt"):
        if file.name != own:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
    saved = SavedFiles(path)
    for table in ("c0", "c3"):
        first, *others = saved.shards_of(table, first=1)
        assert len(first.read()["weight"]) == len(first.ids) > 0
        for other in others:
            with pytest.raises(FormatError, match="its checksum does not match the manifest"):
                other.read()


class _SaveAgain:
    """Let a run save what it loaded to another folder before it goes on."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, rank):
        go_on = run_module._Run.train

        def save_and_go_on(running):
            save_checkpoint(running.trainer, self.folder, running.begin, 2)
            return go_on(running)

        run_module._Run.train = save_and_go_on


def test_what_is_saved_is_what_is_loaded(tmp_path):
    settings = settings_of(tmp_path, "dense.optimizer='adam'")
    trained = trainer_of(settings)
    source = open_source(settings.data)
    for samples in source.batches("train", global_batch=100, rank=0, ranks=1):
        trained.step(samples)
    place = Position(5, 0, 500)
    path = save_checkpoint(trained, tmp_path / "checkpoints", place, keep=2)
    fresh = trainer_of(settings)
    assert not torch.equal(fresh.rows.weight_RD, trained.rows.weight_RD)
    assert load_checkpoint(fresh, path) == place
    assert fresh.rows.step == 5
    assert torch.equal(fresh.rows.weight_RD, trained.rows.weight_RD)
    assert torch.equal(fresh.rows.state_R, trained.rows.state_R)
    assert_equal(fresh.model.state_dict(), trained.model.state_dict())
    assert_equal(fresh.optimizer.state_dict(), trained.optimizer.state_dict())


def rehearsed(settings, ranks):
    return Trainer(settings, open_source(settings.data).schema, Ranks(0, 1, rehearsed=ranks))


def noise_of(trainer):
    found = {}
    for table in trainer.rows.layout.tables:
        trainer.rows.table_shard(table.name)  # brings places of hot rows up to date
        found[table.name] = trainer.rows.table_noise(table.name).clone()
    return found


@pytest.fixture
def noisy(tmp_path):
    """Settings, batches, and a run of two ranks that agreed on scales and has rounded since."""
    settings = settings_of(tmp_path)
    source = open_source(settings.data)
    batches = list(source.batches("train", global_batch=50, rank=0, ranks=1))
    trainer = rehearsed(settings, 2)
    for samples in batches[:5]:
        trainer.step(samples)
    path = save_checkpoint(trainer, tmp_path / "checkpoints", Position(5), keep=2)
    (scales, _) = (state["scales"] for state in trainer.rows.bounds_state())
    assert scales["noted"] != fresh_scales(settings)["noted"]
    assert any(noise_R.any() for noise_R in noise_of(trainer).values())
    return settings, batches[5:8], trainer, path


def fresh_scales(settings):
    return rehearsed(settings, 1).rows.bounds_state()[0]["scales"]


def test_as_many_ranks_go_on_with_the_same_scales_and_noise(noisy):
    settings, batches, trainer, path = noisy
    resumed = rehearsed(settings, 2)
    load_checkpoint(resumed, path)
    for samples in [None, *batches]:
        if samples is not None:
            for each_one in (trainer, resumed):
                each_one.step(samples)
        assert resumed.rows.bounds_state() == trainer.rows.bounds_state()
        assert_equal(noise_of(resumed), noise_of(trainer))
    for table in trainer.rows.layout.tables:
        mine, theirs = (each_one.rows.table_shard(table.name)[1] for each_one in (resumed, trainer))
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_takes_noise_with_the_rows_and_the_agreed_scales(noisy, ranks):
    settings, batches, trainer, path = noisy
    resumed = rehearsed(settings, ranks)
    load_checkpoint(resumed, path)
    assert_equal(noise_of(resumed), noise_of(trainer))
    saved, empty = trainer.rows.bounds_state()[0]["scales"], fresh_scales(settings)
    for state in resumed.rows.bounds_state():
        assert state["scales"] == {**saved, "noted": empty["noted"]}
        assert state["noise"]["updates"] == 0
    costs = [each_one.rounding_cost().gradients_T.tolist() for each_one in (resumed, trainer)]
    assert costs[0] == costs[1]
    resumed.step(batches[0])


def test_a_checkpoint_of_before_noise_was_counted_is_read_over_what_was(noisy):
    settings, batches, trainer, path = noisy
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "bounds-0-of-1.pt").unlink()
    del manifest["files"]["bounds-0-of-1.pt"]
    tables = torch.load(path / "tables-0-of-1.pt", weights_only=True)
    for part in tables.values():
        part.pop("noise", None)
    torch.save(tables, path / "tables-0-of-1.pt")
    checksum = blake2b((path / "tables-0-of-1.pt").read_bytes(), digest_size=16).hexdigest()
    manifest["files"]["tables-0-of-1.pt"] = checksum
    (path / "manifest.json").write_text(json.dumps(manifest))
    for resumed in (rehearsed(settings, 2), rehearsed(settings, 3), trainer):
        assert load_checkpoint(resumed, path) == Position(5)
        assert not any(noise_R.any() for noise_R in noise_of(resumed).values())
        for state in resumed.rows.bounds_state():
            assert state["scales"] == fresh_scales(settings)
            assert state["noise"]["updates"] == 0
            assert not any(figure for pair in state["noise"]["figures"] for figure in pair)
        resumed.step(batches[0])


def test_exact_runs_save_no_noise_and_no_bounds(tmp_path):
    settings = settings_of(tmp_path, "compression.rows=exact", "compression.gradients=exact")
    trainer = rehearsed(settings, 2)
    trainer.step(next(iter(open_source(settings.data).batches("train", global_batch=50, rank=0, ranks=1))))
    path = save_checkpoint(trainer, tmp_path / "checkpoints", Position(1), keep=2)
    assert sorted(file.name for file in path.glob("*.pt")) == ["dense.pt", "tables-0-of-1.pt"]
    parts = torch.load(path / "tables-0-of-1.pt", weights_only=True)
    assert all("noise" not in part for part in parts.values())


def test_a_learning_rate_is_a_setting_and_not_in_the_checkpoint(tmp_path):
    path = save_checkpoint(trainer_of(settings_of(tmp_path)), tmp_path / "checkpoints", Position(3), keep=2)
    other = trainer_of(settings_of(tmp_path, "dense.lr=0.5"))
    load_checkpoint(other, path)
    assert [group["lr"] for group in other.optimizer.param_groups] == [0.5]


@pytest.fixture
def saved(tmp_path):
    trainer = trainer_of(settings_of(tmp_path))
    return trainer, save_checkpoint(trainer, tmp_path / "checkpoints", Position(3), keep=2)


@pytest.mark.parametrize("name", ["dense.pt", "tables-0-of-1.pt"])
def test_a_damaged_file_is_named(saved, name):
    trainer, path = saved
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(
        FormatError, match=rf"/{name}: its checksum does not match the manifest; remove this folder"
    ):
        load_checkpoint(trainer, path)
    (path / name).unlink()
    with pytest.raises(
        FormatError, match=rf"/{name}: the file is missing; remove this folder, an older one is used then$"
    ):
        load_checkpoint(trainer, path)


def test_what_the_manifest_does_not_know_is_not_read(saved):
    trainer, path = saved
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["files"]["tables-0-of-1.pt"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FormatError, match=r"expected the checksum of 'tables-0-of-1.pt', got none$"):
        load_checkpoint(trainer, path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 9}'])
def test_a_damaged_manifest_is_named(saved, text):
    trainer, path = saved
    (path / "manifest.json").write_text(text)
    with pytest.raises(FormatError, match=r"/manifest.json: expected "):
        load_checkpoint(trainer, path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.dim=8", r"it is of another model: model.dim is 4 there and 8 here$"),
        ("model.top=[8, 8]", r"it is of another model: model.top is \[8\] there and \[8, 8\] here$"),
        ("embeddings.optimizer='sgd'", r"embeddings.optimizer is 'adagrad' there and 'sgd' here$"),
        ("dense.optimizer='adam'", r"dense.optimizer is 'adagrad' there and 'adam' here$"),
        ("data.dense=5", r"it is of another model: size mismatch for "),
        (
            "data.rows=[200, 50, 7, 999]",
            r"table 'c3' has 999 rows of 4, the checkpoint row 999 and rows of 4$",
        ),
        ("data.rows=[200, 50, 7, 1001]", r"expected 1001 rows of table 'c3', found 1000$"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(saved, tmp_path, override, message):
    _, path = saved
    with pytest.raises(FormatError, match=message):
        load_checkpoint(trainer_of(settings_of(tmp_path, override)), path)


def test_what_a_crash_left_is_ignored_and_removed(saved):
    trainer, path = saved
    left_over = path.parent / ".step-00000009.partial"
    shutil.copytree(path, left_over)
    half = path.parent / "step-00000010"
    half.mkdir()
    assert newest_checkpoint(path.parent) == path
    newer = save_checkpoint(trainer, path.parent, Position(11), keep=1)
    assert newest_checkpoint(path.parent) == newer
    assert not left_over.exists()
    assert not path.exists()


def test_old_checkpoints_are_removed(tmp_path):
    settings = settings_of(tmp_path, "train.keep_checkpoints=2", samples=16 * 18)
    run(settings, resume=False, console=None)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-00000015", "step-00000018"]


def test_a_finished_run_that_is_resumed_leaves_its_checkpoint_alone(tmp_path):
    settings = settings_of(tmp_path, samples=16 * 6)
    first = run(settings, resume=False, console=None)
    manifest = checkpoint(tmp_path / "run", 6) / "manifest.json"
    before = manifest.stat()
    again = run(settings, resume=True, console=None)
    assert again.evaluation == first.evaluation
    assert (manifest.stat().st_ino, manifest.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_metrics_of_steps_that_are_taken_again_are_dropped(tmp_path):
    settings = settings_of(tmp_path, samples=16 * 20)
    run(
        settings.model_copy(update={"train": settings.train.model_copy(update={"steps": 12})}),
        resume=False,
        console=None,
    )
    shutil.rmtree(checkpoint(tmp_path / "run", 12))  # as if it had been killed before
    metrics = tmp_path / "run" / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write('{"kind": "train", "st')
    run(settings, resume=True, console=None)
    entries = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [entry["step"] for entry in entries if entry["kind"] == "train"] == list(range(1, 21))
    assert [entry["step"] for entry in entries if entry["kind"] == "eval"] == [7, 14, 20]


def test_a_run_does_not_overwrite_another(tmp_path):
    settings = settings_of(tmp_path, samples=32)
    run(settings, resume=False, console=None)
    with pytest.raises(
        ValueError, match=r"^train.out: .* has checkpoints of another run; continue it with --res"
    ):
        run(settings, resume=False, console=None)


def test_a_full_disk_is_one_error_on_every_rank_and_leaves_older_checkpoints(tmp_path, small_disk):
    settings = str(write_settings(tmp_path, samples=16 * 3 * 20))
    out = ("--set", f"train.out={small_disk / 'run'}", "--set", "train.keep_checkpoints=9")
    for rank in start(3, tmp_path, [settings, *out]):
        assert rank.wait() == 1
        (line,) = rank.errors
        assert line.startswith("laconic: ")
        assert "the checkpoint cannot be written: No space left on device; older ones are intact" in line
    folder = small_disk / "run" / "checkpoints"
    assert list(folder.glob(".*")) == []
    newest = newest_checkpoint(folder)
    assert newest is not None
    load_settings = load(tmp_path / "run.toml", RunSettings)
    load_checkpoint(trainer_of(load_settings), newest)


def test_a_disk_that_fills_within_a_table_is_the_same_error(tmp_path, small_disk):
    trainer = trainer_of(settings_of(tmp_path, "data.rows=[200, 50, 7, 100_000]"))
    with pytest.raises(PlanError, match=r"cannot be written: No space left on device; older ones are intact"):
        save_checkpoint(trainer, small_disk / "checkpoints", Position(1), keep=1)
    assert list((small_disk / "checkpoints").iterdir()) == []


def test_a_rank_that_does_not_see_the_folder_says_so(saved, tmp_path, monkeypatch):
    trainer, _ = saved
    monkeypatch.setattr("laconic.train.checkpoint._begin", lambda *_: None)
    with pytest.raises(
        PlanError, match=r"rank 0 does not see the folder .* file system that all ranks share$"
    ):
        save_checkpoint(trainer, tmp_path / "elsewhere", Position(1), keep=1)
