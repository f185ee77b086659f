"""How jobs end, and what is known of them then."""

from __future__ import annotations

import io
import signal

import pytest

from laconic.errors import CommError, ConfigError, PlanError
from laconic.lab import Lab
from tests.lab.conftest import PATIENCE_S, python, wait_until_gone

WAIT = "\nimport signal; print('ready', flush=True); signal.pause()"
HOST_1_FAILS = "import os, sys\nif os.environ['RANK'] == '1': sys.exit('no more rows')\n"


def test_when_a_host_fails_the_others_are_ended_and_it_is_named(pair):
    result = pair.run(python(HOST_1_FAILS + WAIT), grace_s=0, timeout_s=PATIENCE_S)
    assert result.exit_codes[1] == 1
    assert result.hosts[0].ended_by_lab
    assert result.exit_codes[0] == -signal.SIGTERM
    assert not result.hosts[1].ended_by_lab
    assert result.first_failure == 1
    assert result.exit_code == 1
    with pytest.raises(CommError, match=r"^lab: host 1: expected exit code 0, got 1 .*:\nno more rows$"):
        result.check()


def test_survivors_may_notice_by_themselves_within_the_grace(pair):
    script = """
import os, signal, socket, sys
if os.environ["RANK"] == "0":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    with socket.create_server(("10.0.0.1", 6000)) as server:
        peer = server.accept()[0]
    print("connected")
    peer.recv(1)
    signal.sigwait({signal.SIGUSR1})  # the other has ended, not just closed its socket
    sys.exit("the peer is gone")
while True:
    try:
        peer = socket.create_connection(("10.0.0.1", 6000))
        break
    except ConnectionRefusedError:
        pass
"""
    job = pair.start(python(script + WAIT), grace_s=PATIENCE_S)
    job.wait_for("connected", timeout_s=PATIENCE_S)
    job.wait_for("ready", host=1, timeout_s=PATIENCE_S)
    job.signal(1, signal.SIGKILL)
    wait_until_gone(job.pids[1])
    job.signal(0, signal.SIGUSR1)
    result = job.wait(PATIENCE_S)
    assert result.exit_codes == [1, -signal.SIGKILL]
    assert result.first_failure == 1
    assert result.exit_code == 128 + signal.SIGKILL
    assert "the peer is gone" in result.output[0]
    assert not result.hosts[0].ended_by_lab


def test_a_host_that_ignores_the_request_to_end_is_killed(pair, monkeypatch):
    monkeypatch.setattr("laconic.lab.job._KILL_AFTER_S", 0.3)
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + WAIT
    job = pair.start(python(script))
    for host in range(2):
        job.wait_for("ready", host=host, timeout_s=PATIENCE_S)
    assert job.stop().exit_codes == [-signal.SIGKILL] * 2


def test_stopping_a_job_is_no_failure_of_a_host(pair):
    job = pair.start(python(WAIT))
    assert len(set(job.pids)) == 2
    assert job.running
    result = job.stop()
    assert result.first_failure is None
    assert all(host.ended_by_lab for host in result.hosts)
    assert not job.running
    assert job.stop() == result


def test_a_job_past_its_time_is_ended_with_an_error(pair):
    message = r"^lab: expected every host to end within 0.01 s, got hosts 0, 1 still running;"
    with pytest.raises(CommError, match=message):
        pair.run(python(WAIT), timeout_s=0.01)
    pair.run(["true"]).check()


def test_waiting_for_words_that_never_come_is_an_error(pair):
    job = pair.start(["echo", "something else"])
    with pytest.raises(
        CommError, match=r"^lab: host 0: expected it to write 'ready', got 'something else\\n'"
    ):
        job.wait_for("ready", timeout_s=PATIENCE_S)
    job.wait(PATIENCE_S).check()


def test_a_second_job_waits_for_the_first(pair):
    job = pair.start(python(WAIT))
    with pytest.raises(PlanError, match=r"got one that does; wait for it or stop it$"):
        pair.start(["true"])
    job.stop()


def test_a_closed_lab_runs_nothing():
    with pytest.raises(PlanError, match=r"^lab: expected an open lab, got a closed one; use 'with Lab"):
        Lab(hosts=2).run(["true"])


@pytest.mark.parametrize("command", [[], "true"])
def test_a_command_is_a_list(pair, command):
    with pytest.raises(ConfigError, match=r"^lab: command: expected a list of a program and its arguments"):
        pair.run(command)


def test_a_program_that_does_not_exist_is_refused(pair):
    with pytest.raises(ConfigError, match=r"^lab: command: no program 'no-such-program' found"):
        pair.run(["no-such-program"])


def test_a_program_that_cannot_be_started_is_an_exit_code(pair, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    result = pair.run([script])
    assert result.exit_codes == [127, 127]
    assert "No such file or directory" in result.output[0]


def test_lines_that_are_shown_carry_the_name_of_their_host(pair):
    shown = io.StringIO()
    result = pair.run(["sh", "-c", "echo one $RANK; echo two >&2; printf end"], stream=shown).check()
    assert result.output == ["one 0\ntwo\nend", "one 1\ntwo\nend"]
    assert sorted(shown.getvalue().splitlines()) == sorted(
        f"host{host} | {line}" for host in range(2) for line in (f"one {host}", "two", "end")
    )


def test_a_single_host_is_shown_as_it_writes(machine):
    shown = io.StringIO()
    with Lab(hosts=1) as lab:
        lab.run(["sh", "-c", "printf 'a\\nb'"], stream=shown).check()
    assert shown.getvalue() == "a\nb"


def test_much_output_is_kept_whole(pair):
    result = pair.run(python("print('x' * 3_000_000 + 'é')"), timeout_s=PATIENCE_S).check()
    assert result.output == ["x" * 3_000_000 + "é\n"] * 2


def test_a_host_starts_in_the_folder_of_the_caller(pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pair.run(["pwd", "-P"]).check().output == [f"{tmp_path.resolve()}\n"] * 2
