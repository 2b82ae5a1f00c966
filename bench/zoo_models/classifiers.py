"""Classifiers of images, by convolutions, and of points."""
from __future__ import annotations

from .task import adamw, classifier, drop_path, model, normal, sgd


@model
def vgg(torch, full, rng):
    """VGG-16 (Simonyan and Zisserman 2014, https://arxiv.org/abs/1409.1556)."""
    nn = torch.nn
    batch, size, width, hidden, classes = (64, 224, 64, 4096, 1000) if full else (2, 32, 8, 32, 10)
    layers, inner = [], 3
    for block, count in enumerate([2, 2, 3, 3, 3]):
        out = width * min(2**block, 8)
        for _ in range(count):
            layers += [nn.Conv2d(inner, out, 3, padding=1), nn.ReLU(inplace=True)]
            inner = out
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    inner *= (size // 32) ** 2
    for _ in range(2):
        layers += [nn.Linear(inner, hidden), nn.ReLU(inplace=True), nn.Dropout(0.5)]
        inner = hidden
    net = nn.Sequential(*layers, nn.Linear(inner, classes))
    for m in net:
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            nn.init.zeros_(m.bias)
    return classifier(torch, net, normal(rng, batch, 3, size, size), classes, rng, sgd(torch))


@model
def densenet(torch, full, rng):
    """DenseNet-121 (Huang et al. 2016, https://arxiv.org/abs/1608.06993)."""
    nn = torch.nn
    batch, size, growth, blocks, classes = (64, 224, 32, (6, 12, 24, 16), 1000) if full else (4, 32, 8, (2, 3), 10)

    def norm_conv(inner, out, kernel):
        conv = nn.Conv2d(inner, out, kernel, padding=kernel // 2, bias=False)
        return [nn.BatchNorm2d(inner), nn.ReLU(inplace=True), conv]

    class DenseBlock(nn.Module):
        def __init__(self, inner, count):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(*norm_conv(inner + i * growth, 4 * growth, 1), *norm_conv(4 * growth, growth, 3))
                for i in range(count)
            )

        def forward(self, x):
            features = [x]
            for layer in self.layers:
                features.append(layer(torch.cat(features, 1)))
            return torch.cat(features, 1)

    inner = 2 * growth
    net = nn.Sequential(
        nn.Conv2d(3, inner, 7, 2, 3, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    )
    for i, count in enumerate(blocks):
        net.append(DenseBlock(inner, count))
        inner += count * growth
        if i + 1 < len(blocks):
            net.extend([*norm_conv(inner, inner // 2, 1), nn.AvgPool2d(2)])
            inner //= 2
    net.extend([nn.BatchNorm2d(inner), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes)])
    return classifier(torch, net, normal(rng, batch, 3, size, size), classes, rng, sgd(torch))


def conv_norm(torch, inner, out, kernel, stride, groups, activation):
    nn = torch.nn
    conv = nn.Conv2d(inner, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), activation())


def inverted_residual(torch, inner, middle, out, kernel, stride, squeeze, activation, gate, drop=0.0):
    """The block of MobileNetV2 and later: wider, depthwise, gated by squeeze-and-excitation if `squeeze`, narrower."""
    nn = torch.nn

    class Squeeze(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Conv2d(middle, squeeze, 1), nn.Conv2d(squeeze, middle, 1)
            self.activation = nn.ReLU() if gate is nn.Hardsigmoid else activation()
            self.gate = gate()

        def forward(self, x):
            return x * self.gate(self.up(self.activation(self.down(x.mean((2, 3), keepdim=True)))))

    class InvertedResidual(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [conv_norm(torch, inner, middle, 1, 1, 1, activation)] if middle != inner else []
            layers.append(conv_norm(torch, middle, middle, kernel, stride, middle, activation))
            if squeeze:
                layers.append(Squeeze())
            self.body = nn.Sequential(*layers, conv_norm(torch, middle, out, 1, 1, 1, nn.Identity))
            self.residual = stride == 1 and inner == out
            self.drop = drop_path(torch, drop)

        def forward(self, x):
            return x + self.drop(self.body(x)) if self.residual else self.body(x)

    return InvertedResidual()


@model
def mobilenetv3(torch, full, rng):
    """MobileNetV3-Large (Howard et al. 2019, https://arxiv.org/abs/1905.02244)."""
    nn = torch.nn
    batch, size, classes = (64, 224, 1000) if full else (4, 48, 10)
    rows = [  # kernel, middle, out, squeeze, hard swish, stride: table 1
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
        (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2),
        (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
    ]
    net, inner = nn.Sequential(conv_norm(torch, 3, 16, 3, 2, 1, nn.Hardswish)), 16
    for kernel, middle, out, squeeze, hard, stride in rows if full else rows[:8]:
        activation = nn.Hardswish if hard else nn.ReLU
        squeeze = (middle // 4 + 7) // 8 * 8 * squeeze
        net.append(inverted_residual(torch, inner, middle, out, kernel, stride, squeeze, activation, nn.Hardsigmoid))
        inner = out
    net.append(conv_norm(torch, inner, 6 * inner, 1, 1, 1, nn.Hardswish))
    net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * inner, 8 * inner), nn.Hardswish()])
    net.extend([nn.Dropout(0.2), nn.Linear(8 * inner, classes)])
    return classifier(torch, net, normal(rng, batch, 3, size, size), classes, rng, sgd(torch))


@model
def efficientnet(torch, full, rng):
    """EfficientNet-B0 (Tan and Le 2019, https://arxiv.org/abs/1905.11946)."""
    nn = torch.nn
    batch, size, classes = (64, 224, 1000) if full else (4, 48, 10)
    stages = [  # expansion, kernel, stride, out, count: table 1
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ]
    net, inner = nn.Sequential(conv_norm(torch, 3, 32, 3, 2, 1, nn.SiLU)), 32
    for expansion, kernel, stride, out, count in stages if full else stages[:3]:
        for i in range(count):
            net.append(
                inverted_residual(
                    torch, inner, inner * expansion, out, kernel, 1 if i else stride, inner // 4, nn.SiLU, nn.Sigmoid,
                    drop=0.2 * len(net) / 16,
                )
            )
            inner = out
    net.append(conv_norm(torch, inner, 4 * inner, 1, 1, 1, nn.SiLU))
    net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * inner, classes)])
    optimizer = lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, alpha=0.9, eps=1e-3, momentum=0.9)
    return classifier(torch, net, normal(rng, batch, 3, size, size), classes, rng, optimizer, smoothing=0.1)


@model
def convnext(torch, full, rng):
    """ConvNeXt-T (Liu et al. 2022, https://arxiv.org/abs/2201.03545)."""
    nn = torch.nn
    batch, size, classes = (64, 224, 1000) if full else (2, 32, 10)
    widths, depths = ((96, 192, 384, 768), (3, 3, 9, 3)) if full else ((8, 16), (1, 2))

    class Norm(nn.LayerNorm):
        """Layer norm over the channels of a picture."""

        def forward(self, x):
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Block(nn.Module):
        def __init__(self, width, drop):
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width, eps=1e-6)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.gamma = nn.Parameter(torch.full((width,), 1e-6 if full else 0.5))
            self.drop = drop_path(torch, drop)

        def forward(self, x):
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.gamma * self.down(nn.functional.gelu(self.up(y)))
            return x + self.drop(y.permute(0, 3, 1, 2))

    net, inner = nn.Sequential(), 3
    for width, depth in zip(widths, depths):
        patch = 4 if inner == 3 else 2
        if inner != 3:
            net.append(Norm(inner, eps=1e-6))
        net.append(nn.Conv2d(inner, width, patch, patch))
        if inner == 3:
            net.append(Norm(width, eps=1e-6))
        net.extend(Block(width, 0.1) for _ in range(depth))
        inner = width
    net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(inner, eps=1e-6), nn.Linear(inner, classes)])
    return classifier(torch, net, normal(rng, batch, 3, size, size), classes, rng, adamw(torch), smoothing=0.1)


@model
def pointnet(torch, full, rng):
    """PointNet (Qi et al. 2016, https://arxiv.org/abs/1612.00593): transforms of points and features, shared MLPs."""
    nn, F = torch.nn, torch.nn.functional
    batch, points, scale, classes = (64, 1024, 1, 40) if full else (8, 32, 8, 10)
    wide, middle, thin = 1024 // scale, 128 // scale, 64 // scale

    def shared(*widths):
        pairs = zip(widths, widths[1:])
        return nn.Sequential(*(m for a, b in pairs for m in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())))

    def dense(*widths):
        pairs = zip(widths, widths[1:])
        return nn.Sequential(*(m for a, b in pairs for m in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())))

    class Transform(nn.Module):
        """A square matrix for each cloud, the identity at first."""

        def __init__(self, size):
            super().__init__()
            self.size = size
            self.local, self.body = shared(size, thin, middle, wide), dense(wide, wide // 2, wide // 4)
            self.out = nn.Linear(wide // 4, size * size)
            nn.init.normal_(self.out.weight, std=1e-3)
            with torch.no_grad():
                self.out.bias.copy_(torch.eye(size).flatten())

        def forward(self, x):
            return self.out(self.body(self.local(x).amax(2))).view(-1, self.size, self.size)

    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.points, self.features = Transform(3), Transform(thin)
            self.first, self.second = shared(3, thin, thin), shared(thin, thin, middle, wide)
            self.head = nn.Sequential(dense(wide, wide // 2, wide // 4), nn.Dropout(0.3), nn.Linear(wide // 4, classes))

        def forward(self, x):
            x = self.first(torch.bmm(self.points(x), x))
            transform = self.features(x)
            return self.head(self.second(torch.bmm(transform, x)).max(dim=2).values), transform

    def loss(net, d):
        logits, a = net(d.x)
        gap = torch.eye(a.shape[1], device=a.device) - torch.bmm(a, a.transpose(1, 2))
        return F.cross_entropy(logits, d.label) + 1e-3 * gap.square().sum((1, 2)).mean()

    task = classifier(torch, PointNet(), normal(rng, batch, 3, points), classes, rng, adamw(torch, 1e-3))
    task.losses[""], task.predict = loss, lambda net, d: net(d.x)[0]
    return task
