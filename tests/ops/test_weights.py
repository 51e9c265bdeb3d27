"""The weights and buffers of a module, as torch lists them."""

from torch import nn

from gimbal.ops.weights import buffers_of, weights_of


def test_weights_are_those_of_torch_in_its_order():
    shared = nn.Linear(2, 3)
    module = nn.Sequential(nn.Linear(3, 2), nn.ParameterList([nn.Parameter(shared.bias.detach())]), nn.ReLU(), shared)
    module.append(nn.Sequential(shared, nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, affine=False)))
    module[4][1].weight = module[0].weight  # tied
    assert [id(weight) for weight in weights_of(module)] == [id(weight) for weight in module.parameters()]
    assert len(weights_of(module)) == 5
    module[0].weight = nn.Parameter(module[0].weight.detach() + 1)  # as sharding does in a pass
    assert [id(weight) for weight in weights_of(module)] == [id(weight) for weight in module.parameters()]


def test_buffers_are_those_of_torch_in_its_order():
    shared = nn.BatchNorm1d(2)
    module = nn.Sequential(nn.Linear(2, 2), shared, nn.Sequential(nn.ReLU(), shared, nn.BatchNorm1d(3)))
    module.register_buffer("own", None)
    module[0].register_buffer("seen", shared.running_mean)  # under two names
    assert [id(buffer) for buffer in buffers_of(module)] == [id(buffer) for buffer in module.buffers()]
    assert len(buffers_of(module)) == 6
