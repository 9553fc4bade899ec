"""What the site does beyond mkdocs: links into the repository.

Links of the documents that leave docs/ are relative paths on GitHub and for `cargo x tidy`. The
site has no such pages, so there they lead to the repository.
"""

import posixpath
import re

# The target of a Markdown link, without its title.
TARGET = re.compile(r"(?<=\]\()([^)\s]+)")
FENCE = re.compile(r"^\s*```")


def on_page_markdown(markdown, *, page, config, files):
    """Called by mkdocs for each page before it is rendered; returns its new text."""
    folder = posixpath.dirname(page.file.src_uri)
    base = f"{config.repo_url.rstrip('/')}/blob/main/"

    def leading_out(match):
        inside = posixpath.normpath(posixpath.join(folder, match.group(1)))
        return base + inside.removeprefix("../") if inside.startswith("../") else match.group(1)

    return "\n".join(_prose(markdown.splitlines(), lambda line: TARGET.sub(leading_out, line)))


def _prose(lines, change):
    """The lines, those outside of code blocks changed."""
    code = False
    for line in lines:
        fence = bool(FENCE.match(line))
        code ^= fence
        yield line if code or fence else change(line)
