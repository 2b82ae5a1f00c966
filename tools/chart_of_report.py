#!/usr/bin/env python3
"""Takes a chart out of a page that Arete wrote (arete bench --html, report.html) as an SVG image:

    python tools/chart_of_report.py bench.html "Matrix products" docs/images/gemm.svg "one line below the title" """
from __future__ import annotations

import html
import re
import sys

from svg_colours import colours, style


def main() -> None:
    page, title, target, line = sys.argv[1:5]
    with open(page) as f:
        text = f.read()
    charts = {html.unescape(name): (legend, drawing) for name, legend, drawing in re.findall(
        r'<h2>([^<]*)</h2>(?:<div class="legend">(.*?)</div>)?<svg[^>]*>(.*?)</svg>', text, re.S)}
    if title not in charts:
        sys.exit(f"{page} has no chart {title!r}, but {sorted(charts)}")
    legend, drawing = charts[title]
    light, dark = (colours(palette) for palette in re.findall(r":root\{(.*?)\}", text, re.S)[:2])
    rules = ['.c{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}', ".c .b{fill:var(--card)}", ".c text{fill:var(--soft)}",
             ".c .t{fill:var(--text);font-size:16px;font-weight:600}"]
    drawing = re.sub(r'<line class="guide"[^>]*/>', "", drawing)
    drawing = re.sub(r'style="--c:var\(--(c\d)\)"', r'class="\1"', drawing)
    names = re.findall(r'<i style="--c:var\(--(c\d)\)"></i>(.*?)</span>', legend)
    for selector, body in re.findall(r"(\.(?:g|a|l|f|p))\{([^}]*)\}", "".join(re.findall(r"^\.(?:g|a|l|f|p)\{.*$", text, re.M))):
        # In the page a line's colour is a variable of the group around it: here groups have classes.
        own = "var(--c)" in body
        rules += [f".c .{c} {selector}{{{body.replace('var(--c)', f'var(--{c})')}}}"
                  for c, _ in names] if own else [f".c {selector}{{{body}}}"]
    key = "".join(f'<g class="{colour}"><rect x="0" y="{20 * i}" width="16" height="3" class="p"/>'
                  f'<text x="24" y="{20 * i + 6}">{name}</text></g>' for i, (colour, name) in enumerate(names))
    width = 600 + max((7 * len(html.unescape(name)) for _, name in names), default=0) + 24
    with open(target, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" class="c" viewBox="0 0 {width} 390" width="{width}" height="390" '
                f'role="img"><style>\n'
                f'{style(chr(10).join(rules), light, dark)}</style><rect width="{width}" height="390" class="b"/>\n'
                f'<text x="58" y="26" class="t">{html.escape(title)}</text><text x="58" y="45">{html.escape(line)}</text>\n'
                f'<g transform="translate(0 62)">{drawing}</g>\n<g transform="translate(572 90)">{key}</g>\n</svg>\n')


if __name__ == "__main__":
    main()
