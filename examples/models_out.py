"""Models out: a client's model as a program that needs PyTorch alone, and a model for a client that comes later.

python examples/models_out.py
"""

import numpy as np
import torch

import idiolect

if __name__ == "__main__":
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 4)).astype("float32")
    data = (x, x[:, 0] > 0, np.repeat(["ann", "bo", "cy"], 40))
    run = idiolect.run("fedper", data=data, rounds=2, quiet=True)
    run.export(client="ann", out="models")
    program = torch.export.load(next(iter(run.folder.cwd().glob("models/*.pt2")))).module()
    print("logits of the program:", program(torch.tensor(x[:2])).tolist())
    joined = idiolect.join(run, {"di": (x[:20], x[:20, 0] > 0)}, out="joined")
    print("the newcomer's model:", joined.predict(x[:2], client="di"))
