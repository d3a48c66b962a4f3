import os
import subprocess

from turnwise_sandbox.kernel import owner


def test_a_living_owner_is_not_dead():
    assert not owner.is_dead(owner.own_tag())


def test_an_owner_that_ended_but_was_not_waited_for_is_dead():
    child = subprocess.Popen(["sleep", "60"])
    namespace = owner.own_tag().rpartition("-")[2]
    tag = f"{child.pid}-{owner._start_time(child.pid)}-{namespace}"
    assert not owner.is_dead(tag)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert owner.is_dead(tag)
    child.wait()


def test_a_pid_that_was_given_to_another_process_is_a_dead_owner():
    pid, start, namespace = owner.own_tag().split("-")
    assert owner.is_dead(f"{pid}-{int(start) - 1}-{namespace}")


def test_an_owner_in_another_pid_namespace_is_unknown():
    pid, start, namespace = owner.own_tag().split("-")
    assert not owner.is_dead(f"{pid}-{int(start) - 1}-{int(namespace) + 1}")
    assert not owner.is_dead("canary")
