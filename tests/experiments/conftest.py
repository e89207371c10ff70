"""Runs in this process compute with one thread."""

import torch

torch.set_num_threads(1)
