"""Pictures of arrays."""
import numpy as np


def save(path, values, low=None, high=None):
    """A PNG of values (rows, columns) in shades of one scale, or of (rows, columns, 3) in [0, 1] as they are."""
    import arete

    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 2:
        low, high = values.min() if low is None else low, values.max() if high is None else high
        v = np.clip((values - low) / max(high - low, 1e-30), 0, 1)
        # Dark blue, through red, to a light yellow.
        values = np.stack([np.clip(2.4 * v, 0, 1), np.clip(2.0 * v - 0.7, 0, 1), np.clip(0.35 + 0.5 * np.sin(5 * v), 0, 1)], -1)
    bytes_ = (np.clip(values, 0, 1) * 255).astype(np.uint8)
    arete.vision.io.write_png(arete.tensor(np.ascontiguousarray(bytes_.transpose(2, 0, 1))), str(path))


def scene(height, width):
    """A picture to filter: discs and stripes, with noise."""
    y, x = np.mgrid[0:height, 0:width] / height
    p = 0.5 + 0.3 * np.sin(40 * x) * (y > 0.6)
    for cx, cy, r, v in ((0.3, 0.3, 0.2, 0.9), (0.9, 0.35, 0.25, 0.1), (0.6, 0.5, 0.15, 0.7)):
        p = np.where((x - cx) ** 2 + (y - cy) ** 2 < r * r, v, p)
    return (p + np.random.default_rng(0).normal(scale=0.08, size=p.shape)).astype(np.float32)
