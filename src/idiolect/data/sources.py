"""The datasets that live in files: where each comes from, its licence, files, checksums and sizes.

The md5 sums are those that the datasets' homes or best-known readers publish.  Files are compared with them when they
are downloaded and when they are read.  An unpacked file, without its .gz, has no known sum; it is only parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from idiolect.data.character_tokens import LENGTH, VOCABULARY

__all__ = ["EMNIST_SPLITS", "SOURCES", "KnownFile", "Source", "emnist_files"]


@dataclass(frozen=True)
class KnownFile:
    """A file by its canonical name, with the md5 of its canonical bytes; None where only its archive's is known."""

    name: str
    md5: str | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of a dataset that lives in files: where they are, how to get them, what they hold.

    Args:
        name: its name in the catalogue.
        layout: names its reader.
        folder: its own folder in the data folder; "." where its files lie in the data folder itself.
        n_train, n_test, n_classes, shape, mean, std: as in `Dataset`, for the whole of it.
        vocabulary: number of different tokens, or None for images.
        home, licence: where it comes from, and on what terms.
        train_files, test_files: the files of its parts, where they are known one by one.
        more_files: files that a download brings along and `load` reads only when an option asks for them.
        needs: what must lie in the folder besides, as patterns; "a|b" is met by either.
        base_url: the address that files, or the archive, are fetched from; empty without a plain download.
        archive: the one download that holds everything.
        taken: pattern of the archive's members to unpack; the group is the path in the dataset's folder.
        by_hand: what to do where there is no plain download; ends in "into", and the folder follows.
    """

    name: str
    layout: str
    folder: str
    n_train: int
    n_test: int
    n_classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vocabulary: int | None = None
    home: str
    licence: str
    train_files: tuple[KnownFile, ...] = ()
    test_files: tuple[KnownFile, ...] = ()
    more_files: tuple[KnownFile, ...] = ()
    needs: tuple[str, ...] = ()
    base_url: str = ""
    archive: KnownFile | None = None
    taken: str = ""
    by_hand: str = ""

    @property
    def files(self) -> tuple[KnownFile, ...]:
        """The files that `load` reads."""
        return self.train_files + self.test_files

    @property
    def members(self) -> re.Pattern[str]:
        """The pattern of the archive's members to unpack; its group is the path to write to."""
        names = "|".join(re.escape(file.name) for file in self.files + self.more_files)
        return re.compile(self.taken or f"{re.escape(self.folder)}/({names})")


# The number of classes of each official split: Cohen et al., "EMNIST: an extension of MNIST to handwritten letters",
# 2017, https://arxiv.org/abs/1702.05373
EMNIST_SPLITS = {
    "byclass": 62,
    "bymerge": 47,
    "balanced": 47,
    "letters": 26,
    "digits": 10,
    "mnist": 10,
}


def emnist_files(split: str, part: str) -> tuple[KnownFile, KnownFile]:
    """Returns the images file and the labels file of a part of EMNIST, "train" or "test"."""
    stem = f"emnist-{split}-{part}"
    return KnownFile(f"{stem}-images-idx3-ubyte.gz", None), KnownFile(f"{stem}-labels-idx1-ubyte.gz", None)


_KRIZHEVSKY = "none stated by its authors; cite Krizhevsky (2009)"
_CIFAR_SCALE = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_LEAF = "BSD 2-Clause (LEAF)"
_LEAF_FILES = "train/*.json|all_data/*.json|*.json"
_LEAF_RUN = "preprocess.sh -s niid --sf 1.0 -k 0 -t sample"
_LEAF_PUT = "and put its folders train and test, or all_data, into"
_PLAIN = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
_HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

# Whole datasets that partitions cut into clients
_CLASSIC = (
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
        mean=_CIFAR_SCALE[0],
        std=_CIFAR_SCALE[1],
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
        mean=_CIFAR_SCALE[0],
        std=_CIFAR_SCALE[1],
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence=_KRIZHEVSKY,
        base_url="https://www.cs.toronto.edu/~kriz/",
        archive=KnownFile("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    ),
)

# Datasets with natural clients, more classes, larger images or text; images are on the 0..1 scale, as SuPerFed and
# LEAF use them, except where a paper states other constants
_FEDERATED = (
    Source(
        name="emnist",
        layout="emnist",
        folder="emnist",
        train_files=emnist_files("byclass", "train"),
        test_files=emnist_files("byclass", "test"),
        more_files=tuple(
            file
            for split in EMNIST_SPLITS
            if split != "byclass"
            for part in ("train", "test")
            for file in emnist_files(split, part)
        ),
        n_train=697_932,
        n_test=116_323,
        n_classes=62,
        shape=(1, 28, 28),
        mean=(0.0,),
        std=(1.0,),
        home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        licence="none stated by its authors; cite Cohen et al. (2017)",
        base_url="https://biometrics.nist.gov/cs_links/EMNIST/",
        archive=KnownFile("gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e"),
        taken=r"gzip/(emnist-[a-z]+-(?:train|test)-(?:images-idx3|labels-idx1)-ubyte\.gz)",
    ),
    Source(
        name="femnist",
        layout="femnist",
        folder="femnist",
        needs=(_LEAF_FILES,),
        n_train=805_263,
        n_test=0,
        n_classes=62,
        shape=(1, 28, 28),
        mean=(0.0,),
        std=(1.0,),
        home="https://github.com/TalwalkarLab/leaf",
        licence=_LEAF,
        by_hand=f"make it with LEAF (data/femnist/{_LEAF_RUN}) {_LEAF_PUT}",
    ),
    Source(
        name="shakespeare-leaf",
        layout="shakespeare-leaf",
        folder="shakespeare-leaf",
        needs=(_LEAF_FILES,),
        n_train=4_226_158,
        n_test=0,
        n_classes=VOCABULARY,
        shape=(1, 1, LENGTH),
        vocabulary=VOCABULARY,
        home="https://github.com/TalwalkarLab/leaf",
        licence=_LEAF,
        by_hand=f"make it with LEAF (data/shakespeare/{_LEAF_RUN}) {_LEAF_PUT}",
    ),
    Source(
        name="shakespeare-roles",
        layout="shakespeare-roles",
        folder=".",
        needs=("shakespeare_roles.json",),
        n_train=4_207_471,
        n_test=0,
        n_classes=VOCABULARY,
        shape=(1, 1, LENGTH),
        vocabulary=VOCABULARY,
        home="the plays of Shakespeare in XML, marked up by J. Bosak",
        licence="public domain",
        by_hand="put shakespeare_roles.json, an object of users (the roles) and user_data (the list of speeches of "
        "each), which scripts/make_shakespeare_roles.py makes from the plays in XML, into",
    ),
    Source(
        name="cinic-10",
        layout="cinic",
        folder="cinic-10",
        needs=("train/*/*.png", "test/*/*.png"),
        n_train=90_000,
        n_test=90_000,
        n_classes=10,
        shape=(3, 32, 32),
        mean=_CIFAR_SCALE[0],
        std=_CIFAR_SCALE[1],
        home="https://github.com/BayesWatch/cinic-10",
        licence="CC BY 4.0; part of the images from ImageNet, on its terms",
        base_url="https://datashare.ed.ac.uk/bitstream/handle/10283/3192/",
        archive=KnownFile("CINIC-10.tar.gz", "6ee4d0c996905fe93221de577967a372"),
        taken=r"(?:.*/)?((?:train|valid|test)/[a-z]+/[\w.-]+\.png)",
    ),
    Source(
        name="tiny-imagenet",
        layout="tiny-imagenet",
        folder="tiny-imagenet-200",
        needs=("wnids.txt", "train/*/images/*.JPEG", "val/val_annotations.txt", "val/images/*.JPEG"),
        n_train=100_000,
        n_test=10_000,
        n_classes=200,
        shape=(3, 64, 64),
        mean=_PLAIN[0],
        std=_PLAIN[1],
        home="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        licence="none stated by its authors; images from ImageNet, on its terms",
        base_url="http://cs231n.stanford.edu/",
        archive=KnownFile("tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),
        taken=r"tiny-imagenet-200/(wnids\.txt|(?:train/\w+|val)/images/[\w.-]+\.JPEG|val/val_annotations\.txt)",
    ),
    Source(
        name="flickr-aes",
        layout="flickr-aes",
        folder="flickr-aes",
        needs=("FLICKR-AES_image_labeled_by_each_worker.csv", "40K/*"),
        n_train=193_208,
        n_test=0,
        n_classes=5,
        shape=(3, 224, 224),
        mean=_HALF[0],
        std=_HALF[1],
        home="https://github.com/alanspike/personalizedImageAesthetics",
        licence="none stated by its authors; cite Ren et al. (2017)",
        by_hand="put FLICKR-AES_image_labeled_by_each_worker.csv and the folder of images 40K, both linked from "
        "https://github.com/alanspike/personalizedImageAesthetics, into",
    ),
)

SOURCES: dict[str, Source] = {source.name: source for source in _CLASSIC + _FEDERATED}
