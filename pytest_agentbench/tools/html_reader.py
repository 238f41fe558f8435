"""Turns one HTML page into text. A program of its own: `python -I html_reader.py SITE CHARSET LIMIT DESCRIPTOR`.

The page is its stdin; SITE is the folder that the library lies in, CHARSET may be empty. To the descriptor it writes
how many characters the text has, and on the next lines the first LIMIT of them, in UTF-8.
"""

from __future__ import annotations

import sys


def main(site: str, charset: str, limit: int, result: int) -> None:
    """Read the page: what a browser shows, with the links' targets, its title first."""
    sys.path.append(site)
    from resiliparse.extract import html2text
    from resiliparse.parse import encoding, html

    body = sys.stdin.buffer.read()
    codec = charset or encoding.detect_encoding(body, from_html_meta=True) or "utf-8"
    try:
        text = encoding.bytes_to_str(body, codec, errors="replace", fallback_encodings=())
    except LookupError:  # an encoding of the web that Python does not have
        text = body.decode("utf-8", "replace")
    tree = html.HTMLTree.parse(text)
    text = html2text.extract_plain_text(tree, links=True, form_fields=True)
    text = f"{tree.title}\n\n{text}" if tree.title else text
    with open(result, "wb") as file:
        file.write(f"{len(text)}\n{text[:limit]}".encode("utf-8", "replace"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
