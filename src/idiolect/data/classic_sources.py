"""Fashion-MNIST, MNIST and CIFAR: whole datasets that partitions cut into clients."""

from __future__ import annotations

from idiolect.data.source import KnownFile, Source

__all__ = ["CIFAR_SCALE", "CLASSIC"]

_KRIZHEVSKY = "none stated by its authors; cite Krizhevsky (2009)"
CIFAR_SCALE = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

CLASSIC = (
    Source(
        name="fashion-mnist",
        layout="idx",
        folder="fashion-mnist",
        train_files=(
            KnownFile("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            KnownFile("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ),
        test_files=(
            KnownFile("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            KnownFile("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        n_train=60_000,
        n_test=10_000,
        n_classes=10,
        shape=(1, 28, 28),
        mean=(0.5,),
        std=(0.5,),
        home="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        base_url="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    Source(
        name="mnist",
        layout="idx",
        folder="mnist",
        train_files=(
            KnownFile("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            KnownFile("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ),
        test_files=(
            KnownFile("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            KnownFile("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        n_train=60_000,
        n_test=10_000,
        n_classes=10,
        shape=(1, 28, 28),
        mean=(0.1307,),
        std=(0.3081,),
        home="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
        base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    Source(
        name="cifar10",
        layout="cifar",
        folder="cifar-10-batches-py",
        train_files=(
            KnownFile("data_batch_1", "c99cafc152244af753f735de768cd75f"),
            KnownFile("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            KnownFile("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            KnownFile("data_batch_4", "634d18415352ddfa80567beed471001a"),
            KnownFile("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        ),
        test_files=(KnownFile("test_batch", "40351d587109b95175f43aff81a1287e"),),
        n_train=50_000,
        n_test=10_000,
        n_classes=10,
        shape=(3, 32, 32),
        mean=CIFAR_SCALE[0],
        std=CIFAR_SCALE[1],
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence=_KRIZHEVSKY,
        base_url="https://www.cs.toronto.edu/~kriz/",
        archive=KnownFile("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
    ),
    Source(
        name="cifar100",
        layout="cifar",
        folder="cifar-100-python",
        train_files=(KnownFile("train", "16019d7e3df5f24257cddd939b257f8d"),),
        test_files=(KnownFile("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
        n_train=50_000,
        n_test=10_000,
        n_classes=100,
        shape=(3, 32, 32),
        mean=CIFAR_SCALE[0],
        std=CIFAR_SCALE[1],
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence=_KRIZHEVSKY,
        base_url="https://www.cs.toronto.edu/~kriz/",
        archive=KnownFile("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    ),
)
