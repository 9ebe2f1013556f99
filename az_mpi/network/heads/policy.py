"""The policy head (Silver et al. 2018): which moves the search would choose."""

from torch import nn
from torch.nn import functional as F

from az_mpi.network.heads.head import Head, draw, zero

HIDDEN_CHANNELS = 32


class Policy(Head):
    """Logits of all actions, [B, A], illegal ones among them. Target: the search's policy pi; loss -pi^T log p."""

    name, target_dtype = "policy", None

    def __init__(self, game, channels):
        super().__init__()
        _, height, width = game.planes_shape
        self.conv = nn.Conv2d(channels, HIDDEN_CHANNELS, 1)
        self.out = nn.Linear(HIDDEN_CHANNELS * height * width, game.num_actions)

    def initialise(self):
        draw(self.conv)
        zero(self.out)

    def forward(self, tower):
        return self.out(F.relu(self.conv(tower)).flatten(1))

    def loss(self, output, target):
        return -(target * F.log_softmax(output.float(), dim=1)).sum(dim=1)
