"""The page is whole, safe, the same every time, and fits a phone in a real browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from robandit.figures.html import (
    VERDICTS,
    Block,
    CommandBlock,
    Facts,
    Grid,
    Picture,
    Section,
    Text,
    Verdicts,
    page,
    write,
)
from thinned import longer

pytest.importorskip("pyarrow")

VOID = {"meta", "link", "img", "input", "br"}
LONG = "robandit/" + "a_name_that_cannot_be_broken_" * 8
NASTY = """<script>alert("1")</script> & 'x' {title} <img src=http://a.b/c>"""


class Tree(HTMLParser):
    """The tags with their attributes and the text, of a page whose every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self) -> str:
        return " ".join("".join(self.words).split())


def figure(panels: int = 3) -> Figure:
    drawn = Figure(figsize=(7, 3), layout="constrained")
    for place in range(panels):
        axes = drawn.add_subplot(1, panels, place + 1)
        axes.plot(np.arange(100), np.arange(100) ** 0.5, label="OFUL")
        axes.fill_between(np.arange(100), np.arange(100) ** 0.4, np.arange(100) ** 0.6, alpha=0.2)
        axes.set_title(f"C = {place} & <b>", loc="left")
        axes.set(xlabel="round", ylabel="regret")
    drawn.legend(*axes.get_legend_handles_labels())
    return drawn


def blocks(word: str = "word") -> list[Block]:
    numbers: list[list[object]] = [[f"{word} {row}", *(f"{100 * row + k} ± 7" for k in range(12))] for row in range(3)]
    return [
        Text(f"First {word}.\n\nSecond `{word}`."),
        CommandBlock(f"robandit paper figure1 --out {word}"),
        Picture(figure(), f"Caption {word}"),
        Grid([word, *map(str, range(12))], numbers, f"Table {word}"),
        Verdicts([(f"Claim {word}", verdict, f"Evidence {word}") for verdict in VERDICTS]),
        Facts({f"name {word}": word, "trials": 400, "scale": 0.003, "nothing": None}),
    ]


def sample(word: str = "word") -> str:
    sections = [Section("Figure 1", blocks(word)), Section("Figure 1", blocks(word)), Section("—", [Text(word)])]
    return page(f"Title {word}", f"Lead {word}", [*sections, Section(word, [])])


@pytest.mark.parametrize("word", ["word", NASTY, LONG, "`", "σ_t ≤ ½"])
@pytest.mark.no_cover
def test_a_page_is_well_formed_and_says_what_it_was_given(word: str) -> None:
    tree = Tree(sample(word))
    assert tree.text().count(f"Claim {word}") == 2 * len(VERDICTS)
    assert tree.text().count(f"Title {word.replace('`', '')}".strip()) == 2  # in the window's title and at the top
    assert not tree.all("script")
    assert len(tree.all("img")) == 2


@pytest.mark.no_cover
def test_ids_differ_and_the_contents_lead_to_every_section() -> None:
    tree = Tree(sample("Figure 1"))
    ids = [attributes["id"] for _, attributes in tree.tags if "id" in attributes]
    assert ids == ["figure-1", "figure-1-2", "section", "figure-1-3"]
    assert [link["href"] for link in tree.all("a")] == [f"#{name}" for name in ids]
    assert [section["aria-labelledby"] for section in tree.all("section")] == ids


def test_a_made_up_number_does_not_clash_with_a_title() -> None:
    tree = Tree(page("", "", [Section(title, []) for title in ("a", "a 2", "a", "a")]))
    assert [heading["id"] for heading in tree.all("h2")] == ["a", "a-2", "a-3", "a-4"]


@pytest.mark.no_cover
def test_nothing_comes_from_outside() -> None:
    text = sample(NASTY)
    for _, attributes in Tree(text).tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
        assert not [name for name in attributes if name.startswith("on")]
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style
    for svg in pictures(text):
        assert not re.findall(r'(?:href|src)="(?!#|data:)', svg) and "<script" not in svg and "@import" not in svg


def pictures(text: str) -> list[str]:
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    return [base64.b64decode(data).decode() for data in found]


@pytest.mark.no_cover
def test_the_same_input_gives_the_same_bytes_and_settings_stay() -> None:
    before = dict(mpl.rcParams)
    first = sample()
    assert dict(mpl.rcParams) == before
    assert sample() == first
    with mpl.rc_context({"svg.hashsalt": "another", "svg.fonttype": "none", "savefig.bbox": "tight"}):
        assert sample() == first
    once = Picture(figure(), "drawn twice")
    assert once.html() == once.html()
    assert not re.search(r"20\d\d-\d\d-\d\d|Matplotlib", "".join(pictures(first)))


def test_a_picture_has_its_shape_a_caption_and_an_alternative() -> None:
    html = Picture(figure(2), "Regret of `OFUL`").html()
    (image,) = Tree(html).all("img")
    assert int(image["width"]) / int(image["height"]) == pytest.approx(7 / 3, rel=0.01)
    assert image["alt"] == "Regret of OFUL Panels: C = 0 & <b>; C = 1 & <b>. Axes: round; regret. Legend: OFUL."
    assert "<figcaption>Regret of <code>OFUL</code></figcaption>" in html
    assert pictures(html)[0].startswith("<svg") and len(html) < 100_000
    (image,) = Tree(Picture(Figure(), "", alt="Two curves that cross").html()).all("img")
    assert image["alt"] == "Two curves that cross"


def test_text_is_paragraphs_with_code() -> None:
    assert Text("one\ntwo\n\n \n`a < b` & c\n").html() == "<p>one\ntwo</p>\n<p><code>a &lt; b</code> &amp; c</p>"
    assert Text("").html() == ""


def test_a_command_is_kept_to_the_letter() -> None:
    command = "robandit simulate --policy 'oful,radius_scale=0.4' \\\n  --attack \"flip\" > /dev/null && echo `date`"
    tree = Tree(CommandBlock(command).html())
    assert "".join(tree.words) == command


def test_a_table_has_headers_and_numbers_to_the_right() -> None:
    rows: list[list[object]] = [
        ["OFUL", 0.0031234, "120 ± 7", "T", 1, "[0.1, 0.2]"],
        ["Greedy", None, "< 1e-9", "k", 12345.678, "∞"],
    ]
    html = Grid(["policy", "scale", "regret", "in", "count", "interval"], rows, 'A "table"').html()
    tree = Tree(html)
    assert [cell["scope"] for cell in tree.all("th")] == ["col"] * 6 + ["row"] * 2
    assert [cell.get("class", "") == "number" for cell in tree.all("td")] == [True, True, False, True, True] * 2
    assert [cell.get("class", "") == "number" for cell in tree.all("th")[:6]] == [False, True, True, False, True, True]
    assert '<td class="number">0.003123</td>' in html and '<td class="number">–</td>' in html and ">12346<" in html
    (region,) = tree.all("div")
    assert region["aria-label"] == 'A "table"' and region["tabindex"] == "0"


@pytest.mark.parametrize("word", ["T", "k", "e", "2nd", "C = 60", "1 of them", "-x", "information"])
def test_words_are_not_numbers(word: str) -> None:
    assert "number" not in Grid(["policy", "what"], [["OFUL", word], ["Greedy", 1]], "").html()


def test_a_table_may_be_empty_but_not_ragged() -> None:
    assert Tree(Grid(["policy"], [], "none").html()).text() == "none policy"
    with pytest.raises(ValueError, match=r"row 2 must have 2 cells as the header has, got 1"):
        Grid(["policy", "regret"], [["OFUL", 1], ["Greedy"]], "")


def test_a_verdict_is_said_in_words_and_by_a_symbol_of_its_own() -> None:
    rows = [("one", "holds", ""), ("two", "fails", "why"), ("three", "holds", "")]
    assert Tree(Verdicts(rows).html()).text() == "✓ holds: 2 ! fails: 1 ✓ holds one ! fails two why ✓ holds three"
    assert len({symbol for symbol, _ in VERDICTS.values()}) == len(VERDICTS)
    with pytest.raises(ValueError, match=r"the verdict on 'one' must be one of holds, .*, got 'maybe'"):
        Verdicts([("one", "maybe", "")])


def test_a_block_of_ones_own() -> None:
    class Rule:
        def html(self) -> str:
            return "<hr>"

    assert "<hr>" in page("", "", [Section("", [Rule()])])


def test_all_text_stands_out_in_light_and_in_dark() -> None:
    def luminance(color: str) -> float:
        parts = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        return float(
            np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
        )

    schemes = [dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in page("", "", []).split("dark) {")]
    pairs = [(ink, paper) for ink in ("ink", "muted", "link") for paper in ("paper", "panel")]
    pairs += [(look, f"{look}-soft") for _, look in VERDICTS.values()]
    for colors in schemes:
        for pair in pairs:
            dark, light = sorted(luminance(colors[name]) for name in pair)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, pair  # WCAG 2, level AA


def test_writing_never_replaces_silently(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write(path, "σ")
    write(path, "σ")
    with pytest.raises(FileExistsError, match=r"report.html is there already and differs; .*--force"):
        write(path, "other")
    assert path.read_text(encoding="utf-8") == "σ"
    write(path, "other", force=True)
    assert path.read_text(encoding="utf-8") == "other"
    assert list(path.parent.iterdir()) == [path]


# In a browser


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# The page as it is, in frames as wide as a phone and a desk; a window can't be narrower than some 500 pixels.
HARNESS = """<!doctype html><meta charset="utf-8"><title>waiting</title><body><script>
const pages = [PAGE, PAGE_ENLARGED], found = [];
const wait = (frame) => new Promise((done) => { frame.onload = done; document.body.append(frame); });
(async () => {
  for (const width of [320, 390, 768, 1280]) for (const page of pages) {
    const frame = document.createElement("iframe");
    Object.assign(frame.style, { border: 0, width: width + "px", height: "844px" });
    frame.srcdoc = page;
    await wait(frame);
    const inside = frame.contentDocument, images = [...inside.images];
    await Promise.all(images.map((image) => image.decode()));
    const shown = (one) => inside.defaultView.getComputedStyle(one).display != "none";
    found.push({
      width, page: inside.documentElement.scrollWidth, body: inside.body.scrollWidth,
      right: Math.max(...[...inside.querySelectorAll("h1, h2, p, li, dd, pre, figure, .scroll, .frame, caption")]
        .map((one) => one.getBoundingClientRect().right)),
      images: images.map((image) => [image.naturalWidth, image.clientWidth]),
      scrolls: [...inside.querySelectorAll(".scroll")].map((one) => one.scrollWidth > one.clientWidth),
      enlarge: [...inside.querySelectorAll(".enlarge")].map(shown),
    });
    frame.remove();
  }
  document.body.innerHTML = "<pre></pre>";
  document.body.firstChild.textContent = JSON.stringify(found);
})();
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the PATH")
@pytest.mark.parametrize("word", longer(LONG, "word"))
@pytest.mark.no_cover
def test_a_browser_shows_it_without_overflow_or_complaint(word: str, tmp_path: Path) -> None:
    text = sample(word)
    texts = {"PAGE_ENLARGED": text.replace('autocomplete="off"', "checked"), "PAGE": text}
    harness = HARNESS
    for name, value in texts.items():
        harness = harness.replace(name, json.dumps(value).replace("<", "\\u003c"))
    (tmp_path / "harness.html").write_text(harness, encoding="utf-8")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    assert "<h1>" in browse(tmp_path, "page.html")  # as a reader opens it
    answer = re.search(r"<pre>(.*)</pre>", browse(tmp_path, "harness.html"))
    assert answer, "the script did not come to its end"
    found = json.loads(unescape(answer[1]))
    assert [one["width"] for one in found] == [w for w in (320, 390, 768, 1280) for _ in texts]
    for place, one in enumerate(found):
        phone, enlarged = one["width"] < 700, place % 2 == 1
        assert one["page"] == one["width"] and one["body"] <= one["width"] and one["right"] <= one["width"], one
        assert all(natural > 0 for natural, _ in one["images"]) and len(one["images"]) == 2
        assert all((shown > one["width"]) == (phone and enlarged) for _, shown in one["images"]), one
        assert set(one["enlarge"]) == {phone}
        assert all(one["scrolls"]) or not phone  # a wide table, in a box of its own


def browse(folder: Path, name: str) -> str:
    """The page's elements once it has settled; a complaint on its console is an error."""
    quiet = "--disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync"
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *quiet.split()]
    command += [
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,900",
    ]
    command += ["--virtual-time-budget=20000", "--dump-dom", (folder / name).as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout
