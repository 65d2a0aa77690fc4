# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Give a run a ROS domain of its own, so that several on one machine, or a robot's, do not hear each other.

`python -m flashrt_ros.tools.ros_domain COMMAND ...` runs a command in such a domain.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys

from flashrt_ros.tools.config_file import config_file

DOMAINS = range(60, 102)
"""Above what people choose by hand, below the ports that Linux gives to clients."""


def claim() -> socket.socket:
    """Set ROS_DOMAIN_ID to a domain that no other claim holds, visible on this machine only.

    A bound abstract socket is the claim: it needs no file, and the kernel frees it when the last process that has it
    ends.

    Fast DDS gets a profile without shared memory, whose reasons are in it; another RMW its own way to stay local.

    Returns:
        The claim, to be kept open as long as the domain is used. What this process becomes by `exec` has it too, and
        a process that it starts where that is given `descriptors()`.

    Raises:
        OSError: all domains are taken.
    """
    for domain in DOMAINS:
        claimed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claimed.bind(_address(str(domain)))
        except OSError:
            claimed.close()
            continue
        claimed.set_inheritable(True)
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        _stay_on_this_machine()
        return claimed
    raise OSError(f"all ROS domains from {DOMAINS[0]} to {DOMAINS[-1]} are in use; end other runs of flashrt_ros")


def descriptors() -> tuple[int, ...]:
    """The file descriptors by which this process has a claim of ROS_DOMAIN_ID, for `pass_fds` of what uses it too.

    So the domain is taken until the last node has ended, even one that outlives the program that started it.
    """
    address = _address(os.environ.get("ROS_DOMAIN_ID", ""))
    return tuple(number for number in map(int, os.listdir("/proc/self/fd")) if _bound_to(number) == address.encode())


def _address(domain: str) -> str:
    return f"\0flashrt_ros_domain_{domain}"


def _bound_to(number: int) -> object:
    """The address of a socket; None: the descriptor is none's."""
    with contextlib.suppress(OSError):  # it has been closed meanwhile
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            with socket.socket(fileno=os.dup(number)) as found:
                return found.getsockname()
    return None


def _stay_on_this_machine() -> None:
    if (os.environ.get("RMW_IMPLEMENTATION") or "rmw_fastrtps_cpp").startswith("rmw_fastrtps"):
        os.environ["FASTRTPS_DEFAULT_PROFILES_FILE"] = str(config_file("dds_one_machine.xml"))
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "SYSTEM_DEFAULT"
    else:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"


def main() -> None:
    """Run the command line's command in a domain of its own."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m flashrt_ros.tools.ros_domain COMMAND [ARGUMENT ...]")
    _claimed = claim()  # inherited by the command
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
