#!/usr/bin/env python3
"""Converts a terminal's screen with its colours (`tmux capture-pane -e -p`) to SVG. The argument is the picture's title."""

import re
import sys
from xml.sax.saxutils import escape

CHAR_WIDTH, LINE_HEIGHT, MARGIN = 7.8, 18, 16
BACKGROUND, FOREGROUND = "#0d1117", "#d1d7de"
COLOURS = ["#6e7681", "#f85149", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#d1d7de"]


def main():
    lines = sys.stdin.read().rstrip().split("\n")
    style = {"colour": None, "bold": False, "dim": False, "reverse": False}
    elements, columns = [], 0
    for row, line in enumerate(lines):
        column = 0
        for codes, text in re.findall(r"(?:\x1b\[([\d;]*)m)|([^\x1b]+)", line):
            if text:
                elements += run(row, column, text, style)
                column += len(text)
            else:
                change(style, [int(code or 0) for code in codes.split(";")])
        columns = max(columns, column)
    width = round(columns * CHAR_WIDTH) + 2 * MARGIN
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" role="img">'
    )
    print("<!-- Captured by scripts/demo-picture.sh: do not edit. -->")
    print(f"<title>{escape(sys.argv[1])}</title>")
    print(f'<rect width="{width}" height="{height}" rx="12" fill="{BACKGROUND}"/>')
    print("\n".join(elements) + "\n</svg>")


def change(style, codes):
    """Applies one escape sequence to a style."""
    if codes[:2] == [38, 5]:
        style["colour"] = codes[2]
        return
    for code in codes:
        if code == 0:
            style.update(colour=None, bold=False, dim=False, reverse=False)
        elif code in (1, 2, 7):
            style[{1: "bold", 2: "dim", 7: "reverse"}[code]] = True
        elif code == 39:
            style["colour"] = None
        elif 30 <= code <= 37:
            style["colour"] = code - 30


def run(row, column, text, style):
    """Returns the elements of a text in one style. Its length is fixed, so that columns stay below each other in any font."""
    start = len(text) - len(text.lstrip(" "))
    shown = text if style["reverse"] else text.strip(" ")
    if not shown:
        return []
    x = MARGIN + (column + (0 if style["reverse"] else start)) * CHAR_WIDTH
    y, width = MARGIN + row * LINE_HEIGHT, len(shown) * CHAR_WIDTH
    colour = FOREGROUND if style["colour"] is None else COLOURS[style["colour"]]
    elements = []
    if style["reverse"]:
        elements.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE_HEIGHT}" fill="{colour}"/>')
        colour = BACKGROUND
    more = ' font-weight="bold"' if style["bold"] else ""
    more += ' opacity="0.65"' if style["dim"] else ""
    if re.fullmatch("─+", shown):
        elements.append(f'<path d="M{x:.1f} {y + 9}h{width:.1f}" stroke="{colour}"{more}/>')
    else:
        shown = escape(shown.replace(" ", "\u00a0"))
        elements.append(
            f'<text x="{x:.1f}" y="{y + 13}" fill="{colour}" textLength="{width:.1f}"'
            f' lengthAdjust="spacingAndGlyphs"{more}>{shown}</text>'
        )
    return elements


main()
