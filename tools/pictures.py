"""`python -m tools.pictures [PAGE ...]`: run the Python of the pages and keep the pictures it draws in docs/images."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"


def main(arguments: Sequence[str]) -> None:
    """Draw the pictures of these pages, by default of all pages with pictures."""
    sys.path.insert(0, str(ROOT))
    from tests.docs.test_snippets import PAGES, blocks

    chosen = [Path(name).resolve() for name in arguments] or [page for page in PAGES if "(images/" in page.read_text()]
    IMAGES.mkdir(exist_ok=True)
    for page in chosen:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path("images").mkdir()
            module = types.ModuleType("__page__")
            sys.modules[module.__name__] = module
            for block in blocks(page):
                if block.info == "python":
                    code = "\n" * block.line + block.text
                    exec(compile(code, str(page), "exec", dont_inherit=True), vars(module))
            for picture in sorted(Path("images").iterdir()):
                shutil.copy(picture, IMAGES)
                print(f"docs/images/{picture.name}")
            os.chdir(ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
