# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated world of the demo: a six-joint arm over a table with four push buttons that can light up."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_pitch", "wrist_roll", "gripper")
BUTTONS = ("red", "green", "blue", "yellow")

_MODEL_FILE = Path(__file__).with_name("arm.xml")
_HOME = np.array([0.0, -0.1, 1.6, 1.4, 0.0, 0.1])  # rad; the hand hangs over the table and the wrist camera sees it
_HOME_SPREAD = 0.05  # rad
_SLOT_ANGLES = np.array([-0.6, -0.2, 0.2, 0.6])  # rad about the pan axis
_SLOT_RADIUS = 0.22  # m from the pan axis
_SLOT_SPREAD = 0.008  # m
_PRESSED_DEPTH = 0.005  # m of the cap's travel of 0.008 m

_DARK = {
    "red": (0.55, 0.08, 0.08),
    "green": (0.06, 0.40, 0.10),
    "blue": (0.08, 0.16, 0.58),
    "yellow": (0.56, 0.46, 0.05),
}
_LIT = {"red": (1.0, 0.15, 0.15), "green": (0.2, 1.0, 0.25), "blue": (0.2, 0.4, 1.0), "yellow": (1.0, 0.95, 0.2)}

# mjSTATE_FULLPHYSICS lacks the targets and the solver's warm start, without which the next step differs somewhat.
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
_HEADER = struct.Struct("<8s32sQ4?I")  # magic, digest of the model, seed, lights, number of float64 that follow
_MAGIC = b"FRTWRLD1"
_DIGEST_SIZE = hashlib.sha256().digest_size

_INSTABILITIES = (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
    mujoco.mjtWarning.mjWARN_BADCTRL,
)


class World:
    """A deterministic simulation, stepped by joint targets.

    The same seed and the same targets give the same bytes on one machine. `model` and `data` are MuJoCo's own, for
    renderers and for scripts that look inside; whoever changes `data` should know what `save` keeps.

    Attributes:
        model: the MuJoCo model; its materials carry the colours of the lights.
        data: the MuJoCo state.
        seed: the seed of the last reset.
    """

    def __init__(self, seed: int = 0) -> None:
        text = _MODEL_FILE.read_bytes()
        self.model = mujoco.MjModel.from_xml_string(text.decode())
        self.data = mujoco.MjData(self.model)
        self._fingerprint = hashlib.sha256(mujoco.__version__.encode() + text).digest()
        self._joints = np.array([self.model.joint(name).qposadr[0] for name in JOINTS])
        self._dofs = np.array([self.model.joint(name).dofadr[0] for name in JOINTS])
        self._caps = np.array([self.model.joint(f"button_{name}").qposadr[0] for name in BUTTONS])
        self._sockets = [self.model.body(f"socket_{name}").mocapid[0] for name in BUTTONS]
        self._materials = [self.model.material(name).id for name in BUTTONS]
        self._lights = (False,) * len(BUTTONS)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Start an episode: the seed draws where the buttons stand, their order, and how the arm begins.

        Raises:
            FlashrtError: BAD_REQUEST for a seed outside 0 .. 2**64 - 1.
        """
        if not 0 <= seed < 2**64:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"seed is {seed}: give one from 0 to 2**64 - 1")
        self.seed = seed
        random = np.random.default_rng(seed)
        mujoco.mj_resetData(self.model, self.data)
        start = _HOME + random.uniform(-_HOME_SPREAD, _HOME_SPREAD, len(JOINTS))
        self.data.qpos[self._joints] = start
        self.data.ctrl[:] = start
        places = random.permutation(len(BUTTONS))
        spread = random.uniform(-_SLOT_SPREAD, _SLOT_SPREAD, (len(BUTTONS), 2))
        for socket, place, offset in zip(self._sockets, places, spread, strict=True):
            angle = _SLOT_ANGLES[place]
            self.data.mocap_pos[socket, :2] = _SLOT_RADIUS * np.array([np.cos(angle), np.sin(angle)]) + offset
            self.data.mocap_pos[socket, 2] = 0.0
        self.set_lights((False,) * len(BUTTONS))
        self._place()

    def step(self, targets: Sequence[float] | NDArray[np.float64], dt: float) -> None:
        """Move on by `dt` with the servos pulling towards `targets`.

        The servos clip targets to `limits`, as real ones do.

        Args:
            targets: one position a joint, in the order of JOINTS, in radians.
            dt: seconds, a multiple of the model's timestep.

        Raises:
            FlashrtError: BAD_REQUEST for targets of a wrong length or not finite, or another dt (the world is as
                before); NOT_FINITE if the physics became unstable (reset or load).
        """
        wanted = np.asarray(targets, dtype=np.float64)
        if wanted.shape != (len(JOINTS),):
            raise FlashrtError(
                ErrorCode.BAD_REQUEST, f"targets have shape {wanted.shape}: give {len(JOINTS)} of them, {JOINTS}"
            )
        if not np.isfinite(wanted).all():
            bad = JOINTS[int(np.argmin(np.isfinite(wanted)))]
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"target of joint {bad} is not finite: {wanted.tolist()}")
        substeps = self.substeps(dt)
        self.data.ctrl[:] = wanted
        mujoco.mj_step(self.model, self.data, nstep=substeps)
        if any(self.data.warning[kind].number for kind in _INSTABILITIES):
            raise FlashrtError(
                ErrorCode.NOT_FINITE, f"the physics became unstable at {self.time:.3f} s: reset or load the world"
            )
        self._place()

    def substeps(self, dt: float) -> int:
        """Return how many timesteps make `dt` seconds.

        Raises:
            FlashrtError: BAD_REQUEST if it is not a whole number of them, one or more.
        """
        timestep = self.model.opt.timestep
        count = round(dt / timestep) if np.isfinite(dt) else 0
        if count < 1 or abs(count * timestep - dt) > 1e-9:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"dt is {dt} s: give a multiple of the timestep, {timestep} s")
        return count

    @property
    def time(self) -> float:
        """Simulated seconds since the reset; it goes back when an earlier state is loaded."""
        return float(self.data.time)

    @property
    def positions(self) -> NDArray[np.float64]:
        """A copy of the joint positions in the order of JOINTS, in radians."""
        return self.data.qpos[self._joints]

    @property
    def velocities(self) -> NDArray[np.float64]:
        """A copy of the joint velocities in the order of JOINTS, in radians a second."""
        return self.data.qvel[self._dofs]

    @property
    def targets(self) -> NDArray[np.float64]:
        """A copy of what the servos pull towards, in the order of JOINTS, in radians."""
        return self.data.ctrl.copy()

    @property
    def limits(self) -> NDArray[np.float64]:
        """Lowest and highest position of each joint, [joints, 2], in radians."""
        return np.array([self.model.joint(name).range for name in JOINTS])

    @property
    def pressed(self) -> tuple[bool, ...]:
        """Whether each of BUTTONS is down."""
        return tuple(bool(depth < -_PRESSED_DEPTH) for depth in self.data.qpos[self._caps])

    @property
    def lights(self) -> tuple[bool, ...]:
        """Whether each of BUTTONS is lit."""
        return self._lights

    def set_lights(self, lit: Sequence[bool]) -> None:
        """Light each of BUTTONS or darken it.

        Raises:
            FlashrtError: BAD_REQUEST unless there is one value a button.
        """
        if len(lit) != len(BUTTONS):
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"{len(lit)} lights given: give {len(BUTTONS)}, {BUTTONS}")
        self._lights = tuple(bool(on) for on in lit)
        for name, material, on in zip(BUTTONS, self._materials, self._lights, strict=True):
            self.model.mat_rgba[material] = (*(_LIT if on else _DARK)[name], 1.0)
            self.model.mat_emission[material] = 1.0 if on else 0.0

    def save(self) -> bytes:
        """Return the complete state: physics, servo targets, button places, lights, seed and time."""
        count = mujoco.mj_stateSize(self.model, _STATE)
        state = np.empty(count, dtype=np.float64)
        mujoco.mj_getState(self.model, self.data, state, _STATE)
        body = _HEADER.pack(_MAGIC, self._fingerprint, self.seed, *self._lights, count) + state.astype("<f8").tobytes()
        return body + hashlib.sha256(body).digest()

    def load(self, saved: bytes) -> None:
        """Take over a state that `save` gave, this world's own or another's on an equal model.

        Raises:
            FlashrtError: DAMAGED if the bytes are not whole, MANIFEST_MISMATCH if they are of another model or
                another version of MuJoCo; the world is then as before.
        """
        body, digest = saved[:-_DIGEST_SIZE], saved[-_DIGEST_SIZE:]
        if len(body) < _HEADER.size or not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            raise FlashrtError(ErrorCode.DAMAGED, f"{len(saved)} bytes are not a whole saved world: save it again")
        _, fingerprint, seed, *lights, count = _HEADER.unpack_from(body)
        size = mujoco.mj_stateSize(self.model, _STATE)
        if fingerprint != self._fingerprint or count != size or len(body) != _HEADER.size + 8 * size:
            raise FlashrtError(
                ErrorCode.MANIFEST_MISMATCH,
                f"the saved world is of another model or MuJoCo than {_MODEL_FILE.name} and {mujoco.__version__}: "
                "save it again with these",
            )
        state = np.frombuffer(body, dtype="<f8", offset=_HEADER.size).copy()  # MuJoCo 3 refuses a read-only one
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, state, _STATE)
        self.seed = seed
        self.set_lights(lights)
        self._place()

    def _place(self) -> None:
        """Put bodies, cameras and lights where the joints say.

        A step leaves them where they were before its integration; and mj_forward would change the warm start.
        """
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)


def is_saved_world(saved: bytes) -> bool:
    """Return whether bytes begin as those that World.save gives."""
    return saved.startswith(_MAGIC)
