"""Programs with distributions: policies, an autoencoder, fits, classes of their own."""
import numpy as np
import pytest

import arete
import arete.nn
from arete import distributions as ours


def test_policy_gradients():
    """The steps of PPO, with discrete and continuous actions: probabilities of better actions grow."""
    arete.manual_seed(12)
    states = arete.randn(256, 3)
    body = arete.nn.Sequential(arete.nn.Linear(3, 16), arete.nn.Tanh())
    choice, mean, log_std = arete.nn.Linear(16, 4), arete.nn.Linear(16, 2), arete.zeros(2, requires_grad=True)
    optimizer = arete.optim.Adam([*body.parameters(), *choice.parameters(), *mean.parameters(), log_std], lr=0.02)

    def policies():
        h = body(states)
        return ours.Categorical(logits=choice(h)), ours.Independent(ours.Normal(mean(h), log_std.exp()), 1)

    def reward(action, move):
        return (action == 2).float() - (move - 1).square().sum(-1)

    rewards = []
    for _ in range(25):
        with arete.no_grad():
            pick, move = policies()
            a, m = pick.sample(), move.sample()
            before = pick.log_prob(a) + move.log_prob(m)
            gains = reward(a, m)
            rewards.append(gains.mean().item())
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        for _ in range(4):
            pick, move = policies()
            ratio = (pick.log_prob(a) + move.log_prob(m) - before).exp()
            kept = arete.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains)
            loss = -(kept + 0.001 * (pick.entropy() + move.entropy())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert rewards[-1] > rewards[0] + 1.5


def test_variational_autoencoder():
    arete.manual_seed(13)
    data = (arete.rand(64, 1) < 0.5).float().expand(64, 12) * 0.9 + 0.05
    data = ours.Bernoulli(data).sample()
    encoder, decoder = arete.nn.Linear(12, 4), arete.nn.Linear(2, 12)
    optimizer = arete.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.05)
    losses = []
    for _ in range(60):
        loc, scale = encoder(data).chunk(2, -1)
        posterior = ours.Independent(ours.Normal(loc, arete.nn.functional.softplus(scale)), 1)
        prior = ours.Independent(ours.Normal(arete.zeros_like(loc), 1.0), 1)
        rebuilt = ours.Independent(ours.Bernoulli(logits=decoder(posterior.rsample())), 1)
        loss = (ours.kl_divergence(posterior, prior) - rebuilt.log_prob(data)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 2


def test_squashed_actor():
    """The step of SAC: samples and their densities, with gradients, far outside of where atanh is precise."""
    loc = arete.tensor([0.0, 8.0], requires_grad=True)
    d = ours.TransformedDistribution(ours.Normal(loc, 1.0), [ours.transforms.TanhTransform(cache_size=1)])
    x = d.rsample((100,))
    log_p = ours.Independent(d, 1).log_prob(x)
    assert log_p.shape == (100,) and arete.isfinite(log_p).all()
    (log_p.mean() - x.sum(-1).mean()).backward()
    assert arete.isfinite(loc.grad).all()


def test_line_of_a_fit():
    """Gamma's parameters found again by likelihood, and by samples."""
    arete.manual_seed(14)
    data = ours.Gamma(3.0, 2.0).sample((2000,))
    raw = arete.zeros(2, requires_grad=True)
    optimizer = arete.optim.Adam([raw], lr=0.05)
    for _ in range(200):
        loss = -ours.Gamma(*raw.exp()).log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    np.testing.assert_allclose(raw.exp().tolist(), [3.0, 2.0], rtol=0.12)


def test_subclasses_of_programs():
    class Shifted(ours.Normal):
        """One with arguments of its own."""
        def __init__(self, loc, scale, shift):
            self.shift = shift
            super().__init__(loc + shift, scale)

    wide = Shifted(arete.zeros(2), 1.0, 3.0).expand((4, 2))
    assert (wide.shift, wide.mean.tolist()[0]) == (3.0, [3.0, 3.0])

    class Counts(ours.Multinomial):
        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Counts, _instance)
            return super().expand(batch_shape, _instance=new)

    wide = Counts(3, arete.ones(2)).expand((4,))
    assert type(wide) is Counts and wide.sample().sum(-1).tolist() == [3.0] * 4

    class Point(ours.Distribution):
        arg_constraints = {}

        def sample(self, sample_shape=arete.Size()):
            return arete.zeros(self._extended_shape(sample_shape))

    assert Point((2,)).sample((3,)).shape == (3, 2) and repr(Point()) == "Point()"
    for ask in (lambda d: d.mean, lambda d: d.entropy(), lambda d: d.log_prob(arete.ones(1)), lambda d: d.rsample(),
                lambda d: d.support):
        with pytest.raises(NotImplementedError):
            ask(Point())
