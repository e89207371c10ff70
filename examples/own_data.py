"""Arrays of your own: a model for each client, and predictions on raw rows.

python examples/own_data.py
"""

import numpy as np

import idiolect

if __name__ == "__main__":
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 4))
    client = np.repeat(["north", "south", "east", "west"], 60)
    ill = np.where(x[:, 0] + x[:, 1] * (client == "north") > 0, "yes", "no")
    run = idiolect.run("fedper", data=(x, ill, client), rounds=3, quiet=True)
    print(run.predict(x[:5], client="north"), "were", ill[:5])
