"""Pictures as PDF: `pdf` converts an SVG file that `picture` has made.

It knows the elements, attributes and rules of style that these pictures have, and no others: PDF has operators for
lines, areas and text, and every viewer has its font. The coordinates of SVG grow downwards and those of PDF upwards, so
the page is turned over once, and each text once more.
"""

import re
import zlib
from xml.etree import ElementTree

SCALE = 0.75  # points in a pixel
# Widths of Helvetica's characters from " " to "~", in thousandths of the font's size (Adobe's font metrics).
WIDTHS = [
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
]
ROUND = 0.5523  # of a circle's radius: where the control points of its four curves lie


def pdf(svg: str) -> bytes:
    """Return a PDF file of one page with a picture of `picture.picture`."""
    root = ElementTree.fromstring(svg)
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    rules = {}
    for names, body in re.findall(
        r"([^{}]+)\{([^}]*)\}", "".join(e.text or "" for e in root.iter() if _is(e, "style"))
    ):
        for name in names.split(","):
            rules.setdefault(name.strip(), {}).update(_declarations(body))
    drawn = [f"{SCALE} 0 0 {-SCALE} 0 {SCALE * height:.2f} cm"]
    shades: dict[str, str] = {}
    _draw(root, rules, drawn, shades)
    return _file(SCALE * width, SCALE * height, "\n".join(drawn).encode("cp1252", errors="replace"), shades)


def _is(element, name):
    return element.tag.rpartition("}")[2] == name


def _declarations(text):
    pairs = (part.partition(":") for part in text.split(";") if ":" in part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _draw(element, rules, drawn, shades):
    """Add the operators of an element and of those within it to `drawn`. shades: {opacity: name of its state}."""
    name = element.tag.rpartition("}")[2]
    if name in ("title", "style"):
        return
    style = dict(element.attrib)
    style |= rules.get(f".{style.get('class')}", {})
    if name == "text":
        style = rules.get("svg text", {}) | style
    style |= _declarations(style.get("style", ""))
    drawn.append("q")
    for kind, numbers in re.findall(r"(\w+)\(([^)]*)\)", style.get("transform", "")):
        at = [float(number) for number in re.split(r"[ ,]+", numbers.strip())]
        # The only rotation is a quarter to the left, of the text beside an axis.
        drawn.append(f"1 0 0 1 {at[0]} {at[1]} cm" if kind == "translate" else "0 -1 1 0 0 0 cm")
    if "opacity" in style:
        drawn.append(f"/{shades.setdefault(style['opacity'], f'S{len(shades)}')} gs")
    if name == "text":
        _text(element.text or "", style, drawn)
    elif name not in ("g", "svg"):
        _shape(name, style, drawn)
    for inner in element:
        _draw(inner, rules, drawn, shades)
    drawn.append("Q")


def _text(text, style, drawn):
    size = float(style.get("font-size", "11.5px").removesuffix("px"))
    width = sum(WIDTHS[ord(char) - 32] if 32 <= ord(char) < 127 else 556 for char in text) * size / 1000
    left = float(style.get("x", 0)) - width * {"middle": 0.5, "end": 1.0}.get(style.get("text-anchor", ""), 0.0)
    font = "B" if style.get("font-weight") == "600" else "F"
    escaped = re.sub(r"([\\()])", r"\\\1", text)
    drawn.append(f"{_colour(style.get('fill', '#000000'))} rg")
    drawn.append(f"BT /{font} {size} Tf 1 0 0 -1 {left:.2f} {float(style.get('y', 0)):.2f} Tm ({escaped}) Tj ET")


def _shape(name, style, drawn):
    """Add a line, an area or a circle."""
    number = {
        key: float(value) for key, value in style.items() if key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy")
    }
    if name == "line":
        path = f"{number['x1']} {number['y1']} m {number['x2']} {number['y2']} l"
    elif name == "rect":
        path = f"{number.get('x', 0)} {number.get('y', 0)} {style['width']} {style['height']} re"
    elif name == "circle":
        path = _circle(number["cx"], number["cy"], float(style["r"]))
    elif name == "path":
        path = _whisker(style["d"])
    else:
        points = [" ".join(point.split(",")) for point in style["points"].split()]
        path = " ".join(f"{point} {'l' if k else 'm'}" for k, point in enumerate(points)) + " h" * (name == "polygon")
    is_line = name == "line" or style.get("fill") == "none"
    colour = _colour(style.get("stroke" if is_line else "fill", "#000000"))
    drawn.append(f"{colour} RG {style.get('stroke-width', 1)} w 1 j" if is_line else f"{colour} rg")
    drawn.append(f"{path} {'S' if is_line else 'f'}")


def _whisker(path):
    """Return a path of SVG's commands M, V and h as operators."""
    found, x, y = [], 0.0, 0.0
    for command, numbers in re.findall(r"([MVh])([^MVh]*)", path):
        at = [float(value) for value in numbers.split()]
        if command == "M":
            x, y = at
        elif command == "V":
            y = at[0]
        else:
            x += at[0]
        found.append(f"{x:.1f} {y:.1f} {'m' if command == 'M' else 'l'}")
    return " ".join(found)


def _circle(x, y, r):
    k = ROUND * r
    return (
        f"{x + r:.2f} {y:.2f} m "
        f"{x + r:.2f} {y + k:.2f} {x + k:.2f} {y + r:.2f} {x:.2f} {y + r:.2f} c "
        f"{x - k:.2f} {y + r:.2f} {x - r:.2f} {y + k:.2f} {x - r:.2f} {y:.2f} c "
        f"{x - r:.2f} {y - k:.2f} {x - k:.2f} {y - r:.2f} {x:.2f} {y - r:.2f} c "
        f"{x + k:.2f} {y - r:.2f} {x + r:.2f} {y - k:.2f} {x + r:.2f} {y:.2f} c"
    )


def _colour(text):
    """Return "#rrggbb" as three numbers from 0 to 1."""
    return " ".join(f"{int(text[at : at + 2], 16) / 255:.3f}" for at in (1, 3, 5))


def _file(width, height, content, shades):
    """Return a PDF file with the operators `content`."""
    packed = zlib.compress(content)
    states = " ".join(f"/{name} << /ca {opacity} /CA {opacity} >>" for opacity, name in shades.items())
    fonts = " ".join(
        f"/{name} << /Type /Font /Subtype /Type1 /BaseFont /{font} /Encoding /WinAnsiEncoding >>"
        for name, font in (("F", "Helvetica"), ("B", "Helvetica-Bold"))
    )
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:.2f} {height:.2f}] /Contents 4 0 R "
            f"/Resources << /Font << {fonts} >> /ExtGState << {states} >> >> >>"
        ).encode(),
        b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed),
    ]
    file = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(file))
    return file + head + table + end
