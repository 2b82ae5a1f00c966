"""Styles of SVG images in colours for light and for dark screens, without CSS variables: only browsers know those, and other
programs would draw everything in black."""
from __future__ import annotations

import re


def style(rules: str, light: dict[str, str], dark: dict[str, str]) -> str:
    """`rules`, one CSS rule after the other, with var(--name) standing for a colour: in the light ones, and for dark screens in the
    dark ones."""

    def resolved(text: str, colours: dict[str, str]) -> str:
        return re.sub(r"var\(--([\w-]+)\)", lambda m: colours[m[1]], text)

    coloured = [rule for rule in re.findall(r"[^{}]+\{[^{}]*\}", rules) if "var(" in rule]
    return (f"\n{resolved(rules, light).strip()}\n"
            f"@media(prefers-color-scheme:dark){{{resolved(''.join(r.strip() for r in coloured), dark)}}}\n")


def colours(declarations: str) -> dict[str, str]:
    """The names and values in "--ink:#000;--soft:#555"."""
    return dict(re.findall(r"--([\w-]+):\s*([^;}]+)", declarations))
