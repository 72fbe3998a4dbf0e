"""Train a small network on digits. Its manager shows how it learns, and lets it stop and go on anywhere."""

import argparse
import pickle
import sys

from digits import load
from sklearn.neural_network import MLPClassifier

from stoker import Manager
from stoker.manager.callbacks.sklearn import Fitted

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

manager = Manager.create_manager()
manager.track(model=Fitted(model))
for epoch in manager.epochs(options.epochs):
    model.partial_fit(pictures, labels, classes=range(10))
    if not model.loss_ < 100:
        sys.exit(f"epoch {epoch}: the loss is {model.loss_:.3g}, lr {options.lr:g} is too high")
    manager.add_progress("loss", model.loss_)
    manager.add_progress("val_accuracy", model.score(*val))

with open(options.save, "wb") as file:
    pickle.dump(model, file)
