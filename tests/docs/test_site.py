"""The site builds strictly, with typeset equations and without anything that is fetched."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("latex2mathml")
    for name in ("docs", "claims", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def build(copy):
    return subprocess.run([sys.executable, "docs/build.py"], cwd=copy, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_site_builds(copy):
    done = build(copy)
    assert done.returncode == 0, done.stderr
    site = copy / "build" / "site"
    page = (site / "docs" / "methods" / "ClippedRatio.html").read_text(encoding="utf-8")
    assert page.count("<math") >= 4 and "$" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    fetched = {
        address
        for file in site.rglob("*.html")
        for address in re.findall(
            r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?://[^\"]+)", file.read_text(encoding="utf-8")
        )
    }
    assert fetched == set()
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "max_staleness" in index and "from-trl.html" in index


@pytest.mark.slow
def test_a_link_that_leads_nowhere_ends_the_build(copy):
    (copy / "docs" / "index.md").write_text("# Index\n\n[gone](gone.md)\n")
    assert build(copy).returncode == 1
