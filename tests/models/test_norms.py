from __future__ import annotations

import torch
from torch import nn

from fedray.models.norms import batch_norms, frozen_statistics, running_statistics


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LayerNorm(4), nn.BatchNorm1d(4, track_running_stats=False)
    )


def test_which_layers_and_buffers():
    assert list(batch_norms(model())) == ["1", "3"]
    assert running_statistics(model()) == ["1.running_mean", "1.running_var"]
    assert running_statistics(nn.BatchNorm1d(2)) == ["running_mean", "running_var"]
    assert set(running_statistics(model())) <= set(model().state_dict())


def test_frozen_statistics_use_the_batch_and_stay():
    torch.manual_seed(0)
    net = model().train()
    x = 5 + torch.randn(8, 3)
    net(x)  # statistics of theta_0
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with frozen_statistics(net):
        y = net[1](net[0](x))
    torch.testing.assert_close(
        y.mean(0), torch.zeros(4), atol=1e-5, rtol=0
    )  # statistics of the batch: running ones would not give 0
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
    net(x)
    assert net[1].num_batches_tracked == 2  # outside the context, it counts again


def test_evaluation_inside_uses_the_running_statistics():
    net = nn.BatchNorm1d(2).eval()
    net.running_mean.fill_(3.0)
    with frozen_statistics(net):
        y = net(torch.full((4, 2), 3.0))
    torch.testing.assert_close(y, torch.zeros(4, 2))


def test_gradients_reach_scale_and_shift_and_errors_restore():
    net = nn.BatchNorm1d(2).train()
    try:
        with frozen_statistics(net):
            net(torch.randn(4, 2)).square().sum().backward()
            raise KeyError
    except KeyError:
        pass
    assert net.weight.grad is not None and net.bias.grad is not None and net.track_running_stats
