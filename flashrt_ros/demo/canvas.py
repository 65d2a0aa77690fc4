# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo's pictures have in common: colours, letters, and a few shapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""

BACKGROUND: Colour = (18, 22, 28)
PANEL: Colour = (30, 36, 44)
LINE: Colour = (70, 78, 90)
TEXT: Colour = (232, 236, 240)
DIM: Colour = (150, 160, 172)
FAINT: Colour = (98, 108, 120)
GOOD: Colour = (64, 200, 160)
MIXED: Colour = (240, 178, 62)
BAD: Colour = (238, 108, 106)
COOL: Colour = (104, 168, 248)
VIOLET: Colour = (180, 142, 240)


@cache
def font(size: float) -> ImageFont.FreeTypeFont:
    """Return the font that Pillow brings along; it has Latin letters only."""
    made = ImageFont.load_default(size)
    if not isinstance(made, ImageFont.FreeTypeFont):
        raise OSError("Pillow was built without FreeType, which the demo's pictures need")
    return made


@dataclass(frozen=True, slots=True)
class Canvas:
    """A picture that is drawn on, in units of `scale` pixels.

    Attributes:
        image: the picture.
        draw: Pillow's.
        scale: pixels a unit.
    """

    image: Image.Image
    draw: ImageDraw.ImageDraw
    scale: float = 1.0

    @classmethod
    def make(cls, width: float, height: float, scale: float = 1.0) -> Canvas:
        """Return an empty one of that size, in units."""
        image = Image.new("RGB", (round(width * scale), round(height * scale)), BACKGROUND)
        return cls(image, ImageDraw.Draw(image), scale)

    def box(self, box: Box, fill: Colour | None = None, outline: Colour | None = None, radius: float = 0.0) -> None:
        """Draw a rectangle with round corners."""
        left, top, right, bottom = (round(side * self.scale) for side in box)
        width = max(1, round(1.5 * self.scale)) if outline else 0
        corners = (left, top, max(left, right), max(top, bottom))
        self.draw.rounded_rectangle(corners, radius * self.scale, fill, outline, width)

    def line(self, points: list[tuple[float, float]], colour: Colour, width: float = 1.0) -> None:
        """Draw a line through points."""
        scaled = [(x * self.scale, y * self.scale) for x, y in points]
        self.draw.line(scaled, colour, max(1, round(width * self.scale)), joint="curve")

    def dot(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        corners = [side * self.scale for side in (x - radius, y - radius, x + radius, y + radius)]
        self.draw.ellipse(corners, colour)

    def text(
        self, x: float, y: float, words: str, colour: Colour = TEXT, size: float = 14.0, anchor: str = "lm"
    ) -> float:
        """Write a line; `anchor` as in Pillow. Returns its width."""
        letters = font(size * self.scale)
        self.draw.text((x * self.scale, y * self.scale), words, colour, letters, anchor)
        return float(letters.getlength(words)) / self.scale

    def width(self, words: str, size: float) -> float:
        """Return how wide a line would be."""
        return float(font(size * self.scale).getlength(words)) / self.scale

    def paste(self, picture: Image.Image, x: float, y: float) -> None:
        """Put a picture's upper left corner there, pixel by pixel."""
        self.image.paste(picture, (round(x * self.scale), round(y * self.scale)))
