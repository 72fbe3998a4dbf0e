"""The data: 1,797 handwritten digits of 8 × 8 pixels, split the same way for everyone."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def load(part):
    """Pictures and labels of one part: train, val or test."""
    pictures, labels = load_digits(return_X_y=True)
    rest, test, rest_labels, test_labels = train_test_split(
        pictures / 16, labels, test_size=360, random_state=0, stratify=labels
    )
    train, val, train_labels, val_labels = train_test_split(
        rest, rest_labels, test_size=360, random_state=0, stratify=rest_labels
    )
    return {"train": (train, train_labels), "val": (val, val_labels), "test": (test, test_labels)}[part]
