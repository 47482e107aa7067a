"""The suite's own promises: no silent skip, programs that read back, golden files that say how to be written."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """In place of the suite's fixture of this name, which would see the bad programs that the inner suites build."""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty suite that uses this one's conftest, and leaves what the process has frozen and collected to this one.

    At the end of each of them pytest collects garbage five times, from all that the tests of this process hold.
    """
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda *_: 0)
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    return pytester


def test_an_unexpected_skip_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\ndef test_it():\n    pytest.skip('no time')")
    result = suite.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*unexpected skip: no time*")


def test_an_unexpected_skip_of_a_module_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass")
    result = suite.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*unexpected skip: could not import 'no_such_module'*")


def test_an_allowed_skip_is_a_skip(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture(autouse=True)
        def allow(request):
            conftest = request.config.pluginmanager.get_plugin(str(request.config.rootpath / "conftest.py"))
            conftest.ALLOWED_SKIPS["no card"] = "the host twin runs the same text"

        def test_it():
            pytest.skip("no card on this machine")
        """
    )
    suite.runpytest_inprocess().assert_outcomes(skipped=1)


def test_an_expected_failure_is_no_skip(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\n@pytest.mark.xfail(reason='known')\ndef test_it(): assert False")
    suite.runpytest_inprocess().assert_outcomes(xfailed=1)


def test_a_missing_golden_file_fails_with_the_command_that_writes_it(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_page="def test_it(golden): golden('a text')")
    result = suite.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines('*golden/test_page/test_it.txt is missing*"test_page.py::test_it" --update-golden*')


def test_a_golden_file_is_written_once_and_then_compared(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_page="def test_it(golden): golden('a text')")
    suite.runpytest_inprocess("--update-golden").assert_outcomes(passed=1)
    assert (suite.path / "golden/test_page/test_it.txt").read_text() == "a text\n"
    suite.runpytest_inprocess().assert_outcomes(passed=1)


def test_a_differing_golden_file_shows_the_difference(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_page="def test_it(golden): golden('a text')")
    suite.mkdir("golden")
    (suite.path / "golden/test_page").mkdir()
    (suite.path / "golden/test_page/test_it.txt").write_text("another text\n")
    result = suite.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*differs*--update-golden*", "-another text", "+a text"])


def test_a_program_whose_text_does_not_read_back_fails_the_test_that_built_it(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from palladio.ir.bind import form
        from palladio.ir.core import Literal, Program
        from palladio.ops import OPS

        def build(format):
            eqn = form(OPS["debug_print"], [Literal(1, "int32")], {"format": format}, None)
            return Program((), (eqn,), ())

        def test_good():
            build("x = {}")

        def test_bad():
            build(object())
        """
    )
    result = suite.runpytest_inprocess()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*a parameter of type object has no text form*"])
