"""Train a small network on digits. It knows nothing of Stoker: options in, lines and a file out."""

import argparse
import pickle
import sys

from digits import load
from sklearn.neural_network import MLPClassifier

parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, required=True)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--save", required=True)
options = parser.parse_args()

pictures, labels = load("train")
val = load("val")
model = MLPClassifier(
    [options.hidden], solver="sgd", learning_rate_init=options.lr, batch_size=16, random_state=options.seed
)

for epoch in range(1, options.epochs + 1):
    model.partial_fit(pictures, labels, classes=range(10))
    if not model.loss_ < 100:
        sys.exit(f"epoch {epoch}: the loss is {model.loss_:.3g}, lr {options.lr:g} is too high")
    print(f"epoch {epoch} loss={model.loss_:.4f} val_accuracy={model.score(*val):.4f}", flush=True)

with open(options.save, "wb") as file:
    pickle.dump(model, file)
