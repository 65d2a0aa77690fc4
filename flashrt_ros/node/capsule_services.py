# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The services that list capsules, forget them, and move them between memory and disk. None touches the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rclpy.node import Node

from flashrt_ros.node.interfaces import srv
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.node.service_server import serve
from flashrt_ros.policy.capsule_info import path_of


class CapsuleServices:
    """`~/list_capsules`, `~/drop_capsule`, `~/save_capsule` and `~/load_capsule`."""

    def __init__(self, node: Node, log: RequestLog, limit: RateLimit, folder: Path, mind: Callable[[], Mind]) -> None:
        """`mind` raises INACTIVE while the node does not serve; `folder` holds the capsule files."""
        self._folder = folder
        self._mind = mind
        serve(node, log, srv.ListCapsules, "~/list_capsules", self._list)
        serve(node, log, srv.DropCapsule, "~/drop_capsule", self._drop)
        serve(node, log, srv.SaveCapsule, "~/save_capsule", self._save, limit=limit)
        serve(node, log, srv.LoadCapsule, "~/load_capsule", self._load, limit=limit)

    async def _list(self, request: srv.ListCapsules.Request, response: srv.ListCapsules.Response) -> Any:
        keeper = self._mind().keeper
        usage = keeper.store.usage()
        response.capsules = [keeper.describe(held) for held in keeper.tiers.list()]
        response.bytes_used, response.bytes_budget = usage.used_bytes, usage.budget_bytes
        response.disk_bytes_used, response.disk_bytes_budget = keeper.disk_usage()
        response.evictions = usage.evictions
        return response

    async def _drop(self, request: srv.DropCapsule.Request, response: srv.DropCapsule.Response) -> Any:
        keeper = self._mind().keeper
        response.bytes_freed = await keeper.to_disk(request.name) if request.keep_file else keeper.drop(request.name)
        return response

    async def _save(self, request: srv.SaveCapsule.Request, response: srv.SaveCapsule.Response) -> Any:
        keeper = self._mind().keeper
        capsule, path = await keeper.save(request.name)
        response.capsule, response.path = keeper.message(capsule), str(path)
        return response

    async def _load(self, request: srv.LoadCapsule.Request, response: srv.LoadCapsule.Response) -> Any:
        keeper = self._mind().keeper
        capsule = await keeper.load(request.name)
        response.capsule, response.path = keeper.message(capsule), str(path_of(self._folder, request.name))
        return response
