import pytest

from tests.store.needs import need


def test_what_is_missing_is_skipped_at_home_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    need("pytest")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed: no_such_module"):
        need("pytest", "no_such_module")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="not installed: no_such_module"):
        need("no_such_module")
