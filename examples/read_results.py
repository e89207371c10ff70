"""Results of many runs as one tidy frame.

python examples/read_results.py
"""

import idiolect

if __name__ == "__main__":
    small = {"clients": 6, "rounds": 2, "local_epochs": 1, "model": "mlpnet(hidden=16)", "quiet": True}
    idiolect.compare(["fedavg", "fedper"], seeds=[0, 1], out="read", **small)
    final = idiolect.load("read", final=True, headline=True)
    print(final.groupby(["label", "seed"])["value"].mean().unstack().round(3))
