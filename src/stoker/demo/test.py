"""Test a network that train.py saved, on digits that it has never seen."""

import pickle
import sys

from digits import load

with open(sys.argv[1], "rb") as file:
    model = pickle.load(file)
print(f"test_accuracy={model.score(*load('test')):.4f}")
