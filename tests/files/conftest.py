"""Ponds for tests of files: each test runs on a pond in this process and on the same one served and connected to."""

from tests.pond.conftest import Ponds, pond, ponds, pytest_generate_tests

__all__ = ["Ponds", "pond", "ponds", "pytest_generate_tests"]
