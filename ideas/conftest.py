"""Fixtures that the tests of ideas share with golf's own: the tiny data set, and a folder for runs."""

from tests.conftest import runs as runs
from tests.conftest import tiny as tiny
