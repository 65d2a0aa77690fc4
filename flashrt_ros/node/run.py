# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one node in a process that ends well: SIGINT and SIGTERM end it with exit code 0 in every lifecycle state."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import rclpy
from rclpy.exceptions import ParameterException
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from flashrt_ros.node.executor import LeanExecutor
from flashrt_ros.runtime.errors import FlashrtError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
BROKEN = 70
"""Exit code where nobody foresaw what happened, or the device is broken: a new process restores what is durable."""


@runtime_checkable
class Finishing(Protocol):
    """What a node has that must leave something in order when its process ends."""

    def finish(self) -> bool:
        """Leave the robot safe and free everything; the executor runs no more.

        False: a thread does not end, so that the process must be ended under it.
        """


def run_node(factory: Callable[[threading.Event], Node], args: list[str] | None = None) -> int:
    """Make a node, spin it until a signal comes, leave the robot safe, and return the exit code.

    What a callback raises and no code foresaw is logged and ends the node too, with exit code BROKEN.

    Args:
        factory: makes the node from the event that is set when the process shall end; what is slow to import is
            imported there.
        args: command line; None: the process's.
    """
    signals = _receive_signals()
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    stop = threading.Event()
    try:
        node = factory(stop)
    except (FlashrtError, ParameterException) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 1
    executor = LeanExecutor()
    executor.add_node(node)
    wake = node.create_guard_condition(lambda: None)

    def wait_for_signal() -> None:
        os.read(signals, 1)
        stop.set()
        wake.trigger()

    threading.Thread(target=wait_for_signal, name="signals", daemon=True).start()
    code = 0
    try:
        while not stop.is_set():
            executor.spin_once()
    except ExternalShutdownException:
        pass  # somebody shut the context down: nothing can be published any more
    except Exception:
        code = BROKEN
        node.get_logger().fatal(f"exiting with code {code}:\n{traceback.format_exc()}")
    _finish(node, code)
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()
    for number in _SIGNALS:  # an interpreter that ends would give those that it handles their default back: to kill
        signal.signal(number, signal.SIG_IGN)
    return code


def _finish(node: Node, code: int) -> None:
    """Let the node end; where it cannot, end the process with the code, or with BROKEN if its end fails."""
    if not isinstance(node, Finishing):
        return
    try:
        ended = node.finish()
    except Exception:
        code, ended = BROKEN, False
        node.get_logger().fatal(f"cannot end well, exiting with code {code}:\n{traceback.format_exc()}")
    if not ended:
        os._exit(code)


def _receive_signals() -> int:
    """Return a file descriptor that gets a byte for each SIGINT and SIGTERM.

    rclpy's own handling ends the context at once, after which no safety action could be published; a Python handler
    that raises would do so in the middle of any callback, and one that does not raise is not run while the executor
    waits. So the handler does nothing, and a thread reads the byte that Python writes from any thread in any state.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    return read_end
