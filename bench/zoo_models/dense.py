"""Networks that say something of each place of a picture: segmentation, detection, masks."""
from __future__ import annotations

import math

import numpy as np

from .task import Task, adamw, model, normal, sgd, uniform


def conv_norm_relu(nn, inner, out, kernel=3, dilation=1, stride=1):
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(inner, out, kernel, stride, padding, dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


@model
def unet(torch, full, rng):
    """U-Net (Ronneberger et al. 2015, https://arxiv.org/abs/1505.04597), padded; with batch norm, pixels weighted."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, width, depth, classes = (16, 256, 64, 4, 2) if full else (2, 32, 4, 2, 2)

    def double(inner, out):
        return nn.Sequential(conv_norm_relu(nn, inner, out), conv_norm_relu(nn, out, out))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [width << i for i in range(depth + 1)]
            self.down = nn.ModuleList(double(a, b) for a, b in zip([1, *widths], widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
            self.merge = nn.ModuleList(double(2 * w, w) for w in widths[-2::-1])
            self.head = nn.Conv2d(width, classes, 1)

        def forward(self, x):
            skips = []
            for block in self.down[:-1]:
                skips.append(block(x))
                x = F.max_pool2d(skips[-1], 2)
            x = self.down[-1](x)
            for up, merge, skip in zip(self.up, self.merge, reversed(skips)):
                x = merge(torch.cat([skip, up(x)], dim=1))
            return self.head(x)

    def loss(net, d):
        return (F.cross_entropy(net(d.x), d.label, reduction="none") * d.weight).mean()

    data = {
        "x": normal(rng, batch, 1, size, size),
        "label": rng.integers(0, classes, (batch, size, size)),
        "weight": 1 + uniform(rng, batch, size, size),
    }
    return Task(UNet(), data, {"": loss}, lambda net, d: net(d.x).softmax(1), sgd(torch))


@model
def deeplab(torch, full, rng):
    """DeepLabV3+ (Chen et al. 2018, https://arxiv.org/abs/1802.02611): dilated ResNet, pyramid of rates, decoder."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, width, counts, classes = (16, 256, 64, (3, 4, 6, 3), 21) if full else (4, 64, 4, (1, 1, 1, 1), 5)

    class Bottleneck(nn.Module):
        def __init__(self, inner, middle, stride, dilation):
            super().__init__()
            out = 4 * middle
            self.body = nn.Sequential(
                conv_norm_relu(nn, inner, middle, 1),
                conv_norm_relu(nn, middle, middle, 3, dilation, stride),
                nn.Conv2d(middle, out, 1, bias=False),
                nn.BatchNorm2d(out),
            )
            self.shortcut = nn.Identity()
            if stride != 1 or inner != out:
                self.shortcut = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x):
            return F.relu(self.body(x) + self.shortcut(x))

    class Pyramid(nn.Module):
        def __init__(self, inner, out, rates=(6, 12, 18)):
            super().__init__()
            branches = [conv_norm_relu(nn, inner, out, 1)]
            branches += [conv_norm_relu(nn, inner, out, 3, rate) for rate in rates]
            self.branches = nn.ModuleList(branches)
            self.image = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_norm_relu(nn, inner, out, 1))
            self.project = nn.Sequential(conv_norm_relu(nn, out * (len(rates) + 2), out, 1), nn.Dropout(0.5))

        def forward(self, x):
            image = F.interpolate(self.image(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
            return self.project(torch.cat([*(b(x) for b in self.branches), image], 1))

    class DeepLab(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(conv_norm_relu(nn, 3, width, 7, stride=2), nn.MaxPool2d(3, 2, 1))
            self.stages, inner = nn.ModuleList(), width
            for i, count in enumerate(counts):
                stage = nn.Sequential()
                for j in range(count):
                    stage.append(Bottleneck(inner, width << i, 2 if i in (1, 2) and j == 0 else 1, 2 if i == 3 else 1))
                    inner = 4 * width << i
                self.stages.append(stage)
            self.pyramid = Pyramid(inner, 4 * width)
            self.low = conv_norm_relu(nn, 4 * width, width, 1)
            self.decoder = nn.Sequential(conv_norm_relu(nn, 5 * width, 4 * width), nn.Conv2d(4 * width, classes, 1))

        def forward(self, x):
            low = self.stages[0](self.stem(x))
            y = low
            for stage in self.stages[1:]:
                y = stage(y)
            y = F.interpolate(self.pyramid(y), size=low.shape[-2:], mode="bilinear", align_corners=False)
            y = self.decoder(torch.cat([self.low(low), y], 1))
            return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)

    label = rng.integers(0, classes, (batch, size, size))
    label[:, :4] = 255  # the border, which does not count
    data = {"x": normal(rng, batch, 3, size, size), "label": label}
    loss = lambda net, d: F.cross_entropy(net(d.x), d.label, ignore_index=255)
    return Task(DeepLab(), data, {"": loss}, lambda net, d: net(d.x), sgd(torch))


@model
def yolo(torch, full, rng):
    """A detector after YOLOv3 (Redmon and Farhadi 2018, https://arxiv.org/abs/1804.02767), with the complete IoU loss
    (Zheng et al. 2019, https://arxiv.org/abs/1911.08287): three scales, three anchors each."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, width, counts, classes = (16, 320, 32, (1, 2, 8, 8, 4), 80) if full else (2, 64, 4, (1, 1, 1, 1, 1), 5)
    anchors = [[(10, 13), (16, 30), (33, 23)], [(30, 61), (62, 45), (59, 119)], [(116, 90), (156, 198), (373, 326)]]
    strides = (8, 16, 32)

    def conv(inner, out, kernel, stride=1):
        layer = nn.Conv2d(inner, out, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(out), nn.LeakyReLU(0.1, inplace=True))

    class Residual(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = nn.Sequential(conv(width, width // 2, 1), conv(width // 2, width, 3))

        def forward(self, x):
            return x + self.body(x)

    class Yolo(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("anchors", torch.tensor(anchors, dtype=torch.float32) * size / 416, persistent=False)
            self.stem, inner = conv(3, width, 3), width
            self.stages = nn.ModuleList()
            for count in counts:
                blocks = [Residual(2 * inner) for _ in range(count)]
                self.stages.append(nn.Sequential(conv(inner, 2 * inner, 3, 2), *blocks))
                inner *= 2
            self.necks, self.heads, self.laterals = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
            for level in (2, 1, 0):  # coarse to fine
                out = inner // 2 ** (3 - level)
                joined = inner if level == 2 else 3 * out
                self.necks.append(nn.Sequential(conv(joined, out, 1), conv(out, 2 * out, 3), conv(2 * out, out, 1)))
                self.heads.append(nn.Sequential(conv(out, 2 * out, 3), nn.Conv2d(2 * out, 3 * (5 + classes), 1)))
                if level:
                    self.laterals.append(conv(out, out // 2, 1))

        def forward(self, x):
            """For each scale, fine to coarse: (batch, 3, height, width, 5 + classes)."""
            x, maps = self.stem(x), []
            for stage in self.stages:
                x = stage(x)
                maps.append(x)
            outputs, y = [], None
            for i, features in enumerate(reversed(maps[-3:])):
                if i:
                    up = F.interpolate(self.laterals[i - 1](y), scale_factor=2, mode="nearest")
                    features = torch.cat([features, up], 1)
                y = self.necks[i](features)
                p = self.heads[i](y)
                b, _, h, w = p.shape
                outputs.append(p.view(b, 3, 5 + classes, h, w).permute(0, 1, 3, 4, 2).contiguous())
            return outputs[::-1]

    def complete_iou(a, b):
        """Of boxes (x, y, width, height), pair by pair."""
        (a1, a2), (b1, b2) = ((x[:, :2] - x[:, 2:] / 2, x[:, :2] + x[:, 2:] / 2) for x in (a, b))
        inter = (torch.minimum(a2, b2) - torch.maximum(a1, b1)).clamp(min=0).prod(1)
        iou = inter / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inter + 1e-7)
        hull = (torch.maximum(a2, b2) - torch.minimum(a1, b1)).square().sum(1) + 1e-7
        distance = (a[:, :2] - b[:, :2]).square().sum(1)
        v = 4 / math.pi**2 * (torch.atan(b[:, 2] / b[:, 3]) - torch.atan(a[:, 2] / a[:, 3])).square()
        with torch.no_grad():
            alpha = v / (v - iou + 1 + 1e-7)
        return iou - distance / hull - alpha * v

    def loss(net, d):
        """A target belongs to the anchors whose sides are within a factor of four of its own."""
        boxes = objects = kinds = 0
        for p, sizes, stride in zip(net(d.x), net.anchors, strides):
            target = torch.zeros_like(p[..., 4])
            xywh, sizes = d.boxes / stride, sizes / stride
            ratio = xywh[None, :, 2:] / sizes[:, None]
            anchor, index = torch.nonzero(torch.maximum(ratio, 1 / ratio).amax(2) < 4, as_tuple=True)
            if len(index):
                xywh, image = xywh[index], d.image[index]
                cell = xywh[:, :2].floor().long()
                chosen = p[image, anchor, cell[:, 1], cell[:, 0]]
                xy = chosen[:, :2].sigmoid() * 2 - 0.5 + cell
                wh = (chosen[:, 2:4].sigmoid() * 2) ** 2 * sizes[anchor]
                iou = complete_iou(torch.cat([xy, wh], 1), xywh)
                boxes = boxes + (1 - iou).mean()
                target[image, anchor, cell[:, 1], cell[:, 0]] = iou.detach().clamp(0).to(target.dtype)
                onehot = F.one_hot(d.kind[index], classes).to(chosen.dtype)
                kinds = kinds + F.binary_cross_entropy_with_logits(chosen[:, 5:], onehot)
            objects = objects + F.binary_cross_entropy_with_logits(p[..., 4], target)
        return 0.05 * boxes + objects + 0.5 * kinds

    def predict(net, d):
        """Boxes in pixels with the scores of their classes."""
        found = []
        for p, sizes, stride in zip(net(d.x), net.anchors, strides):
            h, w = p.shape[2:4]
            y, x = torch.meshgrid(torch.arange(h, device=p.device), torch.arange(w, device=p.device), indexing="ij")
            xy = (p[..., :2].sigmoid() * 2 - 0.5 + torch.stack([x, y], -1)) * stride
            wh = (p[..., 2:4].sigmoid() * 2) ** 2 * sizes[:, None, None]
            scores = p[..., 4:5].sigmoid() * p[..., 5:].sigmoid()
            found.append(torch.cat([xy, wh, scores], -1).flatten(1, 3))
        return torch.cat(found, 1)

    # No two boxes in one cell: which of them stays would be a choice
    cells = rng.permutation((size // 32) ** 2)[: min(8, (size // 32) ** 2 // 2)]
    cells = np.tile(cells, batch)
    count = len(cells)
    centre = np.stack([cells % (size // 32), cells // (size // 32)], 1) * 32 + 4 + 24 * uniform(rng, count, 2)
    sides = size * (0.05 + 0.5 * uniform(rng, count, 2))
    data = {
        "x": normal(rng, batch, 3, size, size),
        "boxes": np.concatenate([centre, sides], 1).astype(np.float32),
        "image": np.repeat(np.arange(batch), count // batch),
        "kind": rng.integers(0, classes, count),
    }
    return Task(Yolo(), data, {"": loss}, predict, sgd(torch))


@model
def maskrcnn(torch, full, rng):
    """The second stage of Mask R-CNN (He et al. 2017, https://arxiv.org/abs/1703.06870) on given maps and proposals:
    feature pyramid, RoI align, heads of boxes and masks."""
    nn, F = torch.nn, torch.nn.functional
    images, rois, size, width, hidden, classes = (2, 256, 512, 256, 1024, 80) if full else (2, 8, 64, 8, 16, 4)
    inputs = [width << i for i in range(4)]

    def roi_align(features, boxes, image, scale, out, samples=2):
        """Means of samples x samples bilinear samples in each of the out x out cells of each box."""
        height, width = features.shape[-2:]
        n = out * samples
        steps = (torch.arange(n, device=boxes.device) + 0.5) / n
        corner, side = boxes[:, :2] * scale - 0.5, (boxes[:, 2:] - boxes[:, :2]) * scale
        x = (corner[:, :1] + side[:, :1] * steps).clamp(0, width - 1)
        y = (corner[:, 1:] + side[:, 1:] * steps).clamp(0, height - 1)
        x0, y0 = x.floor().long(), y.floor().long()
        x1, y1 = (x0 + 1).clamp(max=width - 1), (y0 + 1).clamp(max=height - 1)
        fx, fy = (x - x0)[:, None, :, None], (y - y0)[:, :, None, None]
        features = features.permute(0, 2, 3, 1)
        at = lambda y, x: features[image[:, None, None], y[:, :, None], x[:, None, :]]
        value = (at(y0, x0) * (1 - fx) + at(y0, x1) * fx) * (1 - fy) + (at(y1, x0) * (1 - fx) + at(y1, x1) * fx) * fy
        return F.avg_pool2d(value.permute(0, 3, 1, 2), samples)

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.lateral = nn.ModuleList(nn.Conv2d(c, width, 1) for c in inputs)
            self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in inputs)
            self.box = nn.Sequential(
                nn.Flatten(), nn.Linear(width * 49, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
            )
            self.score, self.delta = nn.Linear(hidden, classes + 1), nn.Linear(hidden, 4 * (classes + 1))
            layers = [m for _ in range(4) for m in (nn.Conv2d(width, width, 3, padding=1), nn.ReLU())]
            layers += [nn.ConvTranspose2d(width, width, 2, 2), nn.ReLU(), nn.Conv2d(width, classes + 1, 1)]
            self.mask = nn.Sequential(*layers)

        def pyramid(self, maps):
            merged = [self.lateral[-1](maps[-1])]
            for lateral, features in zip(self.lateral[-2::-1], maps[-2::-1]):
                merged.insert(0, lateral(features) + F.interpolate(merged[0], scale_factor=2, mode="nearest"))
            return [smooth(m) for smooth, m in zip(self.smooth, merged)]

        def pool(self, maps, boxes, image, out):
            """Each box from the level of its size."""
            side = (boxes[:, 2:] - boxes[:, :2]).prod(1).sqrt()
            level = (4 + torch.log2(side / (size * 0.4375) + 1e-6)).floor().clamp(2, 5).long() - 2
            pooled = torch.zeros(len(boxes), width, out, out, dtype=maps[0].dtype, device=boxes.device)
            for i, features in enumerate(maps):
                chosen = torch.where(level == i)[0]
                aligned = roi_align(features, boxes[chosen], image[chosen], 0.25 / 2**i, out)
                pooled = pooled.index_put((chosen,), aligned.to(pooled.dtype))
            return pooled

        def forward(self, maps, boxes, image, positive):
            maps = self.pyramid(maps)
            h = self.box(self.pool(maps, boxes, image, 7))
            masks = self.mask(self.pool(maps, boxes[positive], image[positive], 14))
            return self.score(h), self.delta(h).view(len(boxes), classes + 1, 4), masks

    def run(net, d):
        return net([d.c2, d.c3, d.c4, d.c5], d.boxes, d.image, d.positive)

    def loss(net, d):
        score, delta, masks = run(net, d)
        kind = d.kind[d.positive]
        box = F.smooth_l1_loss(delta[d.positive, kind], d.delta, beta=1 / 9, reduction="sum") / len(d.boxes)
        own = masks[torch.arange(len(kind), device=kind.device), kind]
        return F.cross_entropy(score, d.kind) + box + F.binary_cross_entropy_with_logits(own, d.mask)

    count, corner = images * rois, size * 0.6 * uniform(rng, images * rois, 2)
    side = 4 + size * 0.4 * uniform(rng, count, 2) * uniform(rng, count, 1)
    kind = rng.integers(1, classes + 1, count) * (np.arange(count) < count // 4)
    data = {f"c{i + 2}": normal(rng, images, c, size // 4 >> i, size // 4 >> i) for i, c in enumerate(inputs)}
    data |= {
        "boxes": np.concatenate([corner, corner + side], 1).astype(np.float32),
        "image": np.arange(count) % images,
        "kind": kind,
        "positive": np.flatnonzero(kind),
        "delta": 0.2 * normal(rng, count // 4, 4),
        "mask": (uniform(rng, count // 4, 28, 28) < 0.5).astype(np.float32),
    }
    return Task(Heads(), data, {"": loss}, run, adamw(torch))
