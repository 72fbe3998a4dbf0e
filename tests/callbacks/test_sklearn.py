"""Estimators that learn piece by piece: half of them, then another one learns the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import IncrementalPCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier, MLPRegressor

from stoker.manager import Manager, tree
from stoker.manager.callbacks.sklearn import Fitted
from stoker.manager.trial import Trial

NUMBERS = numpy.random.RandomState(1)
X = abs(NUMBERS.normal(size=(200, 6)))
Y = (X[:, 0] > X[:, 1]).astype(int)
PLAIN = [
    lambda: SGDClassifier(random_state=1),
    lambda: SGDClassifier(random_state=1, average=True, loss="log_loss"),
    lambda: SGDRegressor(random_state=1, average=50),
    lambda: Perceptron(random_state=1),
    GaussianNB,
    MultinomialNB,
    lambda: IncrementalPCA(3),
    lambda: MiniBatchKMeans(3, random_state=1, n_init=1),
    lambda: MLPRegressor(hidden_layer_sizes=(8,), random_state=1),
    lambda: MLPClassifier(hidden_layer_sizes=(8,), random_state=1, solver="sgd", learning_rate_init=0.1),
]


def learn(model: Any, pieces: range) -> None:
    more = (
        {"classes": [0, 1]}
        if hasattr(model, "predict_log_proba") or hasattr(model, "decision_function")
        else {}
    )
    for piece in pieces:
        rows = slice(piece * 20, piece * 20 + 20)
        model.partial_fit(X[rows], Y[rows], **more)


def outcome(model: Any) -> Any:
    return model.transform(X) if hasattr(model, "transform") else model.predict(X)


def through_a_file(state: Any, path: Path) -> Any:
    tree.pack(state, tree.Buffer()).write(str(path))
    return tree.unpack(*tree.read(str(path)))


@pytest.mark.parametrize("make", PLAIN)
def test_an_estimator_goes_on_as_if_nothing_had_happened(make: Any, tmp_path: Path) -> None:
    straight, before, after = make(), make(), make()
    learn(straight, range(10))
    learn(before, range(5))
    state = through_a_file(Fitted(before).state_dict(), tmp_path / "state")
    Fitted(after).load_state_dict(state)
    learn(after, range(5, 10))
    assert (outcome(after) == outcome(straight)).all()
    assert (outcome(after) != outcome(before)).any()  # there was something to learn


def test_names_of_features_are_kept(tmp_path: Path) -> None:
    before, after = SGDRegressor(random_state=1).partial_fit(X, Y), SGDRegressor()
    before.feature_names_in_ = numpy.array(["a", "b"], dtype=object)
    Fitted(after).load_state_dict(through_a_file(Fitted(before).state_dict(), tmp_path / "state"))
    assert after.feature_names_in_.dtype == object
    assert list(after.feature_names_in_) == ["a", "b"]


def test_what_keeps_objects_is_told_by_name(tmp_path: Path) -> None:
    model = SGDRegressor().partial_fit(X, Y)
    model.friend = Path()
    manager = Manager(Trial({}, str(tmp_path)), save_every=1)
    manager.track(network=Fitted(model))
    with pytest.raises(TypeError, match=r"network\.friend is a pathlib.*allow_pickle=True"):
        manager.save_progress()


@pytest.mark.parametrize("name", [["os", "system"], ["subprocess", "Popen"], ["sklearn.secret", "Thing"]])
def test_a_checkpoint_cannot_name_any_class(name: list[str]) -> None:
    with pytest.raises(TypeError, match=f"{'.'.join(name)} is no class of scikit-learn"):
        Fitted(SGDRegressor()).load_state_dict({"friend": {"class": name, "own": {}}})


def test_what_learns_in_one_go_is_refused() -> None:
    with pytest.raises(TypeError, match="RandomForestClassifier has no partial_fit"):
        Fitted(RandomForestClassifier())
