"""One contract, run over every store."""

import pytest

pytest.register_assert_rewrite("tests.store.contract")
