# SPDX-License-Identifier: MPL-2.0
# Scenes like those of shapes.py, rendered many at a time by PyTorch on the device that trains,
# which would wait for processes.  Figures are always measured on the scenes of shapes.py.  Not run
# by itself; train_masks.py, train_rotated.py and train_classes.py use it.

import math

import torch
import torch.nn.functional as F

from scenes import DCT, MIN_VISIBLE, PAD
from shapes import BOX, FIELDS, GREATEST_STRETCH, INNER, LABELS, LEAST_STRETCH, STAR

DISTRACTORS = 8
PLACES = 8  # tried for each shape
COLOURS = 8  # tried for each fill


class Scenes:
    """`middle`: one shape about the middle of a full picture, instead of `slots` anywhere in one with borders."""

    def __init__(self, side, slots, lengths, middle, device):
        self.side, self.slots, self.lengths, self.middle, self.device = side, slots, lengths, middle, device
        place = torch.arange(side, device=device) + 0.5
        self.x, self.y = place[None, None, :], place[None, :, None]
        self.dct = torch.from_numpy(DCT).to(device)

    # ------------------------------------------------------------ random numbers

    def uniform(self, low, high, *shape):
        return torch.rand(*shape, device=self.device) * (high - low) + low

    def even(self, low, high, *shape):
        """Of even logarithm."""
        return self.uniform(math.log(low), math.log(high), *shape).exp()

    def sometimes(self, share, *shape):
        return (torch.rand(*shape, device=self.device) < share).float()

    def noise(self, count, channels, cells):
        """Noise of so many cells a side, smooth between them."""
        coarse = torch.randn(count, channels, cells, cells, device=self.device)
        return F.interpolate(coarse, size=(self.side, self.side), mode="bilinear", align_corners=False)

    def wave(self, count, period):
        """Waves between -1 and 1 in a random direction: [count, side, side]; `period` [count]."""
        angle, phase = self.uniform(0, math.pi, count, 1, 1), self.uniform(0, 6.28, count, 1, 1)
        wave = torch.sin((self.x * angle.cos() + self.y * angle.sin()) * (2 * math.pi / period[:, None, None]) + phase)
        return (wave * (1 + 3 * self.sometimes(0.5, count, 1, 1))).clamp(-1, 1)

    # ---------------------------------------------------------------- background

    def background(self, count):
        each = (count, 3, 1, 1)
        strength = self.uniform(0.3, 1.1, count, 1, 1, 1)
        canvas = self.uniform(15, 240, *each).expand(-1, -1, self.side, self.side)
        ramp = self.wave(count, self.uniform(4, 8, count) * self.side)[:, None]
        canvas = canvas + ramp * self.uniform(-45, 45, *each) * strength
        for low, high in ((2, 8), (8, 25)):
            cells = int(torch.randint(low, high, ()))
            canvas = canvas + self.noise(count, 3, cells) * (self.uniform(4, 28, *each) * self.sometimes(0.4, count, 1, 1, 1) * strength)
        stripes = self.wave(count, self.uniform(5, 90, count))[:, None]
        canvas = canvas + stripes * (self.uniform(3, 22, *each) * self.sometimes(0.35, count, 1, 1, 1) * strength)
        for cells in (self.side, self.side // 2):
            canvas = canvas + self.noise(count, 3, cells) * (self.uniform(2, 14, count, 1, 1, 1) * self.sometimes(0.25, count, 1, 1, 1) * strength)
        canvas = canvas.clamp(0, 255)
        many = torch.randint(0, DISTRACTORS + 1, (count,), device=self.device) * self.sometimes(0.75, count)
        for number in range(DISTRACTORS):
            distance = self.line(count) if number % 2 else self.triangle(count)
            share = (0.5 - distance).clamp(0, 1) * (many > number).float()[:, None, None]
            canvas = torch.lerp(canvas, self.uniform(0, 255, *each), share[:, None])
        return canvas

    def line(self, count):
        """Signed distances to a bar with round ends."""
        one = (count, 1, 1)
        thick, angle = self.uniform(0.8, 6, *one), self.uniform(0, math.pi, *one)
        half = torch.maximum(self.uniform(15, 300, *one), 5 * thick) / 2
        u, v = self.turned(self.uniform(0, self.side, *one), self.uniform(0, self.side, *one), angle)
        return torch.hypot((u.abs() - half).clamp(min=0), v) - thick / 2

    def triangle(self, count):
        one = (count, 1, 1)
        half, turn, inner = self.even(8, 160, *one) / 2, self.uniform(0, 6.28, *one), self.uniform(1.5, 2.6, *one)
        cx, cy = self.uniform(0, self.side, *one), self.uniform(0, self.side, *one)
        angles = [turn, turn + inner, turn + inner + self.uniform(1.5, 2.6, *one)]
        corners = [(cx + half * a.cos(), cy + half * a.sin()) for a in angles]
        worst = None
        for (px, py), (qx, qy) in zip(corners, corners[1:] + corners[:1]):
            nx, ny = qy - py, px - qx
            distance = ((self.x - px) * nx + (self.y - py) * ny) / torch.hypot(nx, ny).clamp(min=1e-3)
            worst = distance if worst is None else torch.maximum(worst, distance)
        return worst

    def turned(self, cx, cy, angle):
        """Every pixel along and across an axis through a centre."""
        dx, dy, cos, sin = self.x - cx, self.y - cy, angle.cos(), angle.sin()
        return dx * cos + dy * sin, dy * cos - dx * sin

    # -------------------------------------------------------------------- shapes

    def shapes(self, count, frame):
        """Class, centre, sides and angle of the shapes [count, slots], which of them are there, and their upright halves."""
        many = (count, self.slots)
        classes = torch.randint(0, len(LABELS), many, device=self.device)
        length = self.even(*self.lengths, *many).sort(1, descending=True).values  # small ones on top
        thinnest = torch.where(classes == STAR, 20.0, 10.0)
        breadth = torch.maximum(length / self.even(LEAST_STRETCH, GREATEST_STRETCH, *many),
                                torch.minimum(length / LEAST_STRETCH, thinnest))
        angle = self.uniform(0, math.pi, *many)
        half = self.upright(classes, length, breadth, angle)
        if self.middle:
            room = 0.2 * (self.side - length)[..., None]
            centre = self.side / 2 + self.uniform(-1, 1, *many, 2) * room
            return classes, centre, length, breadth, angle, torch.ones(many, dtype=torch.bool, device=self.device), half
        centre, there = self.placed(many, half, frame)
        return classes, centre, length, breadth, angle, there, half

    @staticmethod
    def upright(classes, a, b, angle):
        """Half width and height of the upright box around a shape."""
        cos, sin = angle.cos().abs(), angle.sin().abs()
        box = torch.stack([a * cos + b * sin, a * sin + b * cos], -1)
        star = torch.stack([torch.maximum(a * cos, b * sin), torch.maximum(a * sin, b * cos)], -1)
        disc = torch.stack([torch.hypot(a * cos, b * sin), torch.hypot(a * sin, b * cos)], -1)
        kind = classes[..., None]
        return torch.where(kind == BOX, box, torch.where(kind == STAR, star, disc)) / 2

    def placed(self, many, half, frame):
        """Centres mostly clear of the other shapes, sometimes cut by the frame's edge; and for which one was found."""
        count, slots = many
        tolerated = torch.where(torch.rand(count, device=self.device) < 0.4, 0.5, 0.1)
        # Inside the frame, or past its edge.
        reach = torch.where(torch.rand(*many, 1, device=self.device) < 0.7, 0.0, 0.75)
        low = torch.minimum(frame[:, None, :2] + half * (1 - 2 * reach), frame.view(count, 1, 2, 2).mean(2))
        high = torch.maximum(frame[:, None, 2:] - half * (1 - 2 * reach), frame.view(count, 1, 2, 2).mean(2))
        tries = low[:, :, None] + torch.rand(*many, PLACES, 2, device=self.device) * (high - low)[:, :, None]
        centre, there = torch.zeros(*many, 2, device=self.device), torch.zeros(many, dtype=torch.bool, device=self.device)
        wanted = torch.randint(1, slots + 1, (count,), device=self.device) * (torch.rand(count, device=self.device) > 0.04)
        taken = torch.zeros(count, device=self.device, dtype=torch.long)
        for slot in range(slots):
            worst = torch.zeros(count, PLACES, device=self.device)
            own = half[:, slot, None]
            for other in range(slot):
                apart = (tries[:, slot] - centre[:, other, None]).abs()
                theirs = half[:, other, None]
                shared = (torch.minimum(own + theirs - apart, 2 * torch.minimum(own, theirs))).clamp(min=0).prod(-1)
                share = shared / (4 * torch.minimum(own.prod(-1), theirs.prod(-1)))
                worst = torch.maximum(worst, share * there[:, other, None])
            least, best = worst.min(1)
            centre[:, slot] = tries[torch.arange(count, device=self.device), slot, best]
            there[:, slot] = (least <= tolerated) & (taken < wanted)
            taken += there[:, slot]
        return centre, there

    @staticmethod
    def distance(classes, u, v, a, b):
        """Signed distance to a shape with halves a and b of its sides; u and v are positive."""
        box = torch.maximum(u - a, v - b)
        star = torch.minimum(beyond(u, v, a, b), beyond(v, u, b, a))
        near = torch.hypot(u / a, v / b)
        disc = near * (near - 1) / torch.hypot(u / (a * a), v / (b * b)).clamp(min=1e-6)
        return torch.where(classes == BOX, box, torch.where(classes == STAR, star, disc))

    def colour(self, against, least):
        """A colour that stands out from all in `against`, [count, 3] each, and by how much."""
        count = len(against[0])
        tries = self.uniform(0, 255, count, COLOURS, 3)
        margin = torch.stack([contrast(tries, other[:, None]) for other in against]).amin(0)
        rank = torch.arange(COLOURS, 0, -1, device=self.device) * 1e4
        best = torch.where(margin >= least[:, None], rank, margin).argmax(1)
        row = torch.arange(count, device=self.device)
        return tries[row, best], margin[row, best]

    def draw(self, canvas, owner, slot, shape, sharpness, inner):
        """Blends one shape of each scene into the canvas."""
        classes, centre, length, breadth, angle, there = (part[:, slot] for part in shape)
        count, each = len(canvas), (-1, 1, 1)
        cells = (centre / self.side * 16).long().clamp(0, 15)
        below = F.avg_pool2d(canvas, self.side // 16)[torch.arange(count, device=self.device), :, cells[:, 1], cells[:, 0]]
        least = self.uniform(35, 60, count)
        fill, margin = self.colour([below], least)
        edge, _ = self.colour([below, fill], least)

        u, v = self.turned(centre[:, :1, None], centre[:, 1:, None], angle.view(each))
        kind = classes.view(each)
        distance = self.distance(kind, u.abs(), v.abs(), length.view(each) / 2, breadth.view(each) / 2)
        is_ramp = torch.rand(count, device=self.device) < 0.4
        period = torch.where(is_ramp, 4 * length, (breadth * self.uniform(0.12, 0.5, count)).clamp(min=4.0))
        amount = (self.uniform(0.2, 0.5, count) * margin).view(-1, 1, 1, 1)
        pattern = self.wave(count, period)[:, None] * self.sometimes(0.5, count, 1, 1, 1)
        pattern = pattern + self.noise(count, 3, self.side) * (0.4 * self.sometimes(0.15, count, 1, 1, 1))
        paint = (fill[:, :, None, None] + pattern * amount).clamp(0, 255)
        thick = torch.maximum(breadth * self.uniform(0.03, 0.12, count), torch.ones_like(breadth)) * self.sometimes(0.4, count)
        outer = 1 - (0.5 - (distance + thick.view(each)) * sharpness).clamp(0, 1)
        paint = torch.lerp(paint, edge[:, :, None, None], (outer * (thick > 0).view(each))[:, None])

        share = (0.5 - distance * sharpness).clamp(0, 1) * there.view(each)
        owner[(share > 0.5) & inner] = slot + 1
        return torch.lerp(canvas, paint, share[:, None])

    # ------------------------------------------------------------ camera and codec

    def degrade(self, canvas):
        one = (len(canvas), 1, 1, 1)
        for share in (0.4, 0.2):
            padded = F.pad(canvas, (1, 1, 1, 1), mode="replicate")
            blurred = F.avg_pool2d(F.avg_pool2d(padded, 2, 1), 2, 1)
            canvas = torch.lerp(canvas, blurred, self.sometimes(share, *one))
        changed = (canvas - 127) * self.uniform(0.6, 1.2, *one) + 127 + self.uniform(-35, 35, *one)
        canvas = torch.lerp(canvas, changed, self.sometimes(0.5, *one))
        canvas = canvas + torch.randn_like(canvas) * (self.uniform(1, 8, *one) * self.sometimes(0.4, *one))
        return torch.lerp(canvas, self.codec(canvas.clamp(0, 255)), self.sometimes(0.7, *one)).clamp(0, 255)

    def codec(self, canvas):
        """Half the chroma, and rounded DCT coefficients: finer than in scenes.py, whose frames are larger than the input."""
        count = len(canvas)
        r, g, b = canvas.unbind(1)
        luma = 0.299 * r + 0.587 * g + 0.114 * b
        step = self.even(1, 16, count, 1, 1, 1, 1)
        planes = []
        for plane in (luma, (b - luma) * 0.564, (r - luma) * 0.713):
            half = F.avg_pool2d(plane[:, None], 2)[:, 0] if planes else plane
            rows = half.shape[1] // 8
            blocks = half.view(count, rows, 8, rows, 8).transpose(2, 3)
            scaled = self.dct @ blocks @ self.dct.T / step
            kept = torch.trunc(scaled.abs() + 0.35) * scaled.sign() * step
            kept[..., 0, 0] = scaled[..., 0, 0] * step[..., 0, 0]
            half = (self.dct.T @ kept @ self.dct).transpose(2, 3).reshape(half.shape)
            planes.append(F.interpolate(half[:, None], scale_factor=2.0, mode="nearest")[:, 0] if planes else half)
        y, cb, cr = planes
        blue, red = y + cb / 0.564, y + cr / 0.713
        return torch.stack([red, (y - 0.299 * red - 0.114 * blue) / 0.587, blue], 1)

    # --------------------------------------------------------------------- batches

    def frames(self, count):
        """Left, top, right, bottom of the pictures within the input's borders, and a map of what is inside."""
        aspect = torch.tensor([16 / 9, 16 / 9, 4 / 3, 1.0, 3 / 4, 9 / 16], device=self.device)
        aspect = aspect[torch.randint(0, len(aspect), (count,), device=self.device)] if not self.middle else torch.ones(count, device=self.device)
        width, height = (self.side * aspect.clamp(max=1)).round(), (self.side / aspect.clamp(min=1)).round()
        left, top = ((self.side - width) / 2).floor(), ((self.side - height) / 2).floor()
        frame = torch.stack([left, top, left + width, top + height], 1)
        in_x = (self.x > left[:, None, None]) & (self.x < (left + width)[:, None, None])
        return frame, in_x & (self.y > top[:, None, None]) & (self.y < (top + height)[:, None, None])

    def render(self, count):
        """As so many of shapes.training_sample, or of shapes.class_sample."""
        frame, inner = self.frames(count)
        canvas, owner = self.background(count), torch.zeros(count, self.side, self.side, dtype=torch.uint8, device=self.device)
        *shape, half = self.shapes(count, frame)
        # Frames larger than the input have sharper edges.
        sharpness = self.uniform(1, 2.2, count, 1, 1)
        for slot in range(self.slots):
            canvas = self.draw(canvas, owner, slot, shape, sharpness, inner)
        canvas = torch.where(inner[:, None], self.degrade(canvas), float(PAD))
        images = (canvas + 0.5).to(torch.uint8).permute(0, 2, 3, 1)
        if self.middle:
            return images, shape[0][:, 0]
        return images, self.rows(shape, half, owner, frame), owner

    def rows(self, shape, half, owner, frame):
        classes, centre, length, breadth, angle, there = shape
        numbers = range(1, self.slots + 1)
        seen = torch.stack([(owner == number).sum((1, 2)) for number in numbers], 1)
        share = torch.where(classes == BOX, 1.0, torch.where(classes == STAR, INNER, math.pi / 4))
        visible = seen / (share * length * breadth)
        low = torch.maximum(centre - half, frame[:, None, :2])
        high = torch.minimum(centre + half, frame[:, None, 2:])
        flags = torch.stack([there & (seen > 0), visible < MIN_VISIBLE, classes], -1).float()
        rotated = torch.cat([centre, torch.stack([length, breadth, angle], -1)], -1)
        rows = torch.cat([flags, (low + high) / 2, (high - low).clamp(min=0), rotated], -1)
        assert rows.shape[-1] == FIELDS
        return rows * flags[..., :1]


def beyond(u, v, a, b):
    """As shapes.beyond."""
    du, dv = (INNER - 1) * a, INNER * b
    return ((u - a) * dv - v * du) / torch.hypot(du, dv)


def contrast(a, b):
    """As scenes.contrast, of colours in the last dimension."""
    apart = a - b
    luma = apart @ torch.tensor([0.299, 0.587, 0.114], device=apart.device)
    return luma.abs() + 0.35 * (apart - luma[..., None]).abs().amax(-1)


def flipped(images, rows, owner):
    """The same scenes mirrored and turned, all of a batch in the same way: images [count, 3, side, side]."""
    side, rows = images.shape[-1], rows.clone()
    if torch.rand(()) < 0.5:
        images, owner = images.flip(3), owner.flip(2)
        rows[..., [3, 7]] = side - rows[..., [3, 7]]
        rows[..., 11] = math.pi - rows[..., 11]
    if torch.rand(()) < 0.5:
        images, owner = images.flip(2), owner.flip(1)
        rows[..., [4, 8]] = side - rows[..., [4, 8]]
        rows[..., 11] = -rows[..., 11]
    if torch.rand(()) < 0.5:
        images, owner = images.transpose(2, 3), owner.transpose(1, 2)
        rows = rows[..., [0, 1, 2, 4, 3, 6, 5, 8, 7, 9, 10, 11]]
        rows[..., 11] = math.pi / 2 - rows[..., 11]
    return images, [rows, owner]
