"""The datasets of the papers' larger scenes: natural clients, more classes, larger images, text.

Images are on the 0..1 scale, as SuPerFed and LEAF feed them, except where a paper states other constants.
"""

from __future__ import annotations

from idiolect.data.classic_sources import CIFAR_SCALE
from idiolect.data.emnist_files import DEFAULT_SPLIT, SPLITS, emnist_files
from idiolect.data.source import KnownFile, Source
from idiolect.data.text import LENGTH, VOCABULARY

__all__ = ["FEDERATED"]

_LEAF = "BSD 2-Clause (LEAF)"
_LEAF_FILES = "train/*.json|all_data/*.json|*.json"
_LEAF_RUN = "preprocess.sh -s niid --sf 1.0 -k 0 -t sample"
_LEAF_PUT = "and put its folders train and test, or all_data, into"
_PLAIN = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
_HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

FEDERATED = (
    Source(
        name="emnist",
        layout="emnist",
        folder="emnist",
        train_files=emnist_files(DEFAULT_SPLIT, "train"),
        test_files=emnist_files(DEFAULT_SPLIT, "test"),
        more_files=tuple(
            file
            for split in SPLITS
            if split != DEFAULT_SPLIT
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
        mean=CIFAR_SCALE[0],
        std=CIFAR_SCALE[1],
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
