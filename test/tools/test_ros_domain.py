# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Each claim has a domain of its own, for as long as it lives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait

from flashrt_ros.tools import ros_domain

LOCAL = ("FASTRTPS_DEFAULT_PROFILES_FILE", "ROS_AUTOMATIC_DISCOVERY_RANGE")


def test_claims_differ_and_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROS_DOMAIN_ID", *LOCAL):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(ros_domain, "DOMAINS", range(200, 202))
    with ros_domain.claim():
        assert os.environ["ROS_DOMAIN_ID"] == "200"
        with ros_domain.claim():
            assert os.environ["ROS_DOMAIN_ID"] == "201"
            with pytest.raises(OSError, match="from 200 to 201 are in use"):
                ros_domain.claim()
    with ros_domain.claim():
        assert os.environ["ROS_DOMAIN_ID"] == "200"


@pytest.mark.parametrize("rmw", ["", "rmw_fastrtps_cpp", "rmw_cyclonedds_cpp"])
def test_every_rmw_stays_on_this_machine(rmw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROS_DOMAIN_ID", *LOCAL):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("RMW_IMPLEMENTATION", rmw)
    with ros_domain.claim():
        profile, reach = (os.environ[name] for name in LOCAL)
    if rmw == "rmw_cyclonedds_cpp":
        assert (profile, reach) == ("", "LOCALHOST")
    else:
        assert reach == "SYSTEM_DEFAULT"
        assert Path(profile).name == "dds_one_machine.xml"


PARTICIPANT = """
import os, pathlib, rclpy
rclpy.init()
node = rclpy.create_node("alone")
links = [os.readlink(link) for link in pathlib.Path("/proc/self/fd").iterdir() if link.is_symlink()]
rows = [line.split() for line in open("/proc/net/udp").readlines()[1:]]
print({row[1].split(":")[0] for row in rows if f"socket:[{row[9]}]" in links})
print("/dev/shm/fastrtps" in open("/proc/self/maps").read())
"""


def test_a_participant_uses_the_loopback_and_no_shared_memory() -> None:
    pytest.importorskip("rclpy")
    command = [sys.executable, "-m", "flashrt_ros.tools.ros_domain", sys.executable, "-c", PARTICIPANT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    addresses, shared_memory = done.stdout.splitlines()
    assert shared_memory == "False"
    assert addresses == "{'0100007F'}"  # 127.0.0.1, as the kernel writes it


def test_command_line_runs_in_a_claimed_domain_with_its_exit_code() -> None:
    code = "import os, sys; print(os.environ['ROS_DOMAIN_ID']); sys.exit(3)"
    command = [sys.executable, "-m", "flashrt_ros.tools.ros_domain", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert int(done.stdout) in ros_domain.DOMAINS
    assert done.stdout.strip() != os.environ["ROS_DOMAIN_ID"]


STARTER = """
import sys, time
from pathlib import Path
from flashrt_ros.demo.processes import Processes

processes = Processes(Path(sys.argv[1]))
processes.start("node", [sys.executable, "-c", "import time; time.sleep(600)"])
print(processes.pid("node"), flush=True)
time.sleep(600)
"""


CLAIM_OF_ITS_OWN = """
from flashrt_ros.tools import ros_domain

ros_domain.DOMAINS = range(202, 204)  # nobody else takes it once it is free
ros_domain.main()
"""


def test_a_node_that_outlives_its_program_keeps_the_domain(tmp_path: Path) -> None:
    taken = "import os; print(os.environ['ROS_DOMAIN_ID'], flush=True); "
    command = [sys.executable, "-c", CLAIM_OF_ITS_OWN, sys.executable, "-c", taken + STARTER]
    with subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        domain, node = program.stdout.readline().strip(), int(program.stdout.readline())
        program.kill()
    try:
        assert not free(domain)
    finally:
        os.kill(node, signal.SIGKILL)
    wait(lambda: free(domain), 10.0)


def free(domain: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claimed:
        try:
            claimed.bind(f"\0flashrt_ros_domain_{domain}")
        except OSError:
            return False
    return True
