"""The page in headless Chromium: no script error, no request, nothing overflows, tables sort, links jump."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from records import a_record, a_settings, write_records

from results.archive import load
from results.report import html
from results.report.build import build_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NASTY = '<script>alert("x")</script>&"'


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it: two rails, three workloads, failures, names that try to be markup."""
    folder = tmp_path_factory.mktemp("page")
    records = []
    for workload, batch in (("resnet50", 208), ("ssd", 56), ("maskrcnn", 6)):
        for rail in ("edr-1", "edr-2"):
            for nodes, epochs in ((1, 35), (2, 35), (4, 36), (8, 41)):
                for repeat in range(1, 6):
                    records.append(
                        a_record(
                            workload=workload, nodes=nodes, minutes=160 / nodes + repeat / 10 + epochs / 10, epochs=epochs,
                            interconnect=rail, repeat=repeat, exposed_share=0.01 * nodes, straggler_share=0.004 * nodes,
                            input_wait_share=0.01, settings=a_settings(workload, local_batch_size=batch),
                        )
                    )  # fmt: skip
    records.append(a_record(nodes=8, repeat=9, status="failed"))
    records.append(a_record(nodes=4, repeat=9, rails="rails-differ"))
    records.append(a_record(system=NASTY))
    write_records(folder / "runs", records)
    report = build_report(load([folder / "runs"]), [folder / "runs"], ["mlperf-v0.6"])
    (folder / "report.html").write_text(html.render(report), encoding="utf-8")
    return folder / "report.html"


class Structure(HTMLParser):
    """Ids, links and references of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "xlink:href", "src", "srcset", "action"):
                (self.links if (value or "").startswith("#") else self.sources).append(value or "")


def structure(page: Path) -> Structure:
    found = Structure()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def test_one_file_under_a_megabyte_that_refers_to_nothing_outside(page: Path) -> None:
    assert page.stat().st_size < 1_000_000
    assert all(source.startswith("data:") for source in structure(page).sources)
    style = re.sub(r"<pre>.*?</pre>", "", page.read_text(), flags=re.DOTALL)
    assert "@import" not in style
    assert not re.search(r"url\((?!#)", style)


def test_links_jump_and_ids_are_unique(page: Path) -> None:
    found = structure(page)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert found.tags.count("svg") == 9
    assert found.tags.count("script") == 1, "a system's name became markup"


def test_png_for_slides(page: Path) -> None:
    found = [source for source in structure(page).sources if source.startswith("data:image/png;base64,")]
    assert len(found) == 9
    assert all(base64.b64decode(source.split(",")[1])[:8] == b"\x89PNG\r\n\x1a\n" for source in found)


def test_every_run_and_set_up_is_there(page: Path) -> None:
    text = page.read_text()
    assert text.count('<tr id="run-') == 123
    for fact in (
        "Xeon(R) Gold 6148",
        "HOROVOD_CYCLE_TIME=0.1",
        "mlx5_1:1 100 Gb/sec (4X EDR)",
        "0123456789abcdef",
        "mpirun -n 32",
    ):
        assert fact in text


def test_hundreds_of_runs_still_fit(tmp_path: Path) -> None:
    names = [f"system {number}" for number in range(40)]
    records = [
        a_record(nodes=n, minutes=160 / n + r, system=name, repeat=r + 1) for name in names for n in (1, 2, 4) for r in range(5)
    ]
    write_records(tmp_path, records)
    text = html.render(build_report(load([tmp_path]), [tmp_path]))
    assert len(text.encode()) < 1_000_000
    assert "the JSON lists all" in text


def test_a_page_of_nothing_but_failures(tmp_path: Path) -> None:
    write_records(tmp_path, [a_record(status="failed")])
    text = html.render(build_report(load([tmp_path]), [tmp_path]))
    assert "rank 3 was killed by signal 9" in text
    assert "No run here can be scored" in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("Chromium and its driver are not here (Debian: chromium, chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="package selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def show(browser: Any, page: Path, width: int, mode: str) -> None:
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": mode}]})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_overflows_and_nothing_is_asked_of_the_network(browser: Any, page: Path, width: int, mode: str) -> None:
    browser.get_log("performance")
    browser.get_log("browser")
    show(browser, page, width, mode)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.wide, .skip')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"
    )
    assert outside == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if url.startswith(("http", "ws", "ftp", "//"))] == []


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_figures_are_drawn_and_text_has_contrast(browser: Any, page: Path, mode: str) -> None:
    show(browser, page, 1280, mode)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(s => [s.clientWidth, s.clientHeight])"
    )
    assert len(boxes) == 9
    assert all(width > 250 and height > 100 for width, height in boxes)
    colors = browser.execute_script(
        "const c = e => getComputedStyle(e); return [...document.querySelectorAll('p, td, th, a, h2, summary, figure svg text')]"
        ".map(e => e.namespaceURI.endsWith('svg') ? c(e).fill : c(e).color).concat(c(document.body).backgroundColor)"
    )
    paper = luminance(colors.pop())
    for color in set(colors):
        light, dark = sorted((luminance(color), paper), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{color} in {mode}"  # WCAG 2.1, AA


def luminance(color: str) -> float:
    """Relative luminance of `rgb(r, g, b)` (WCAG 2.1)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.browser
def test_tables_sort_by_number_and_back(browser: Any, page: Path) -> None:
    show(browser, page, 1280, "light")
    read = "return [...document.querySelectorAll('#runs table.sortable tbody tr')].map(r => r.cells[5].textContent.trim())"
    button = browser.execute_script("return document.querySelectorAll('#runs table.sortable th button')[5]")
    assert button.text == "minutes"
    for order in ("ascending", "descending"):
        browser.execute_script("arguments[0].click()", button)
        cells = [cell for cell in browser.execute_script(read) if cell != "–"]
        values = [float(cell) for cell in cells]
        assert values == sorted(values, reverse=order == "descending")
        assert browser.execute_script("return arguments[0].parentNode.getAttribute('aria-sort')", button) == order
    assert len(values) == 122


@pytest.mark.browser
def test_a_link_opens_what_is_folded_away(browser: Any, page: Path) -> None:
    show(browser, page, 1280, "light")
    assert not browser.execute_script("return document.getElementById('setup-1').open")
    browser.execute_script("document.querySelector('a[href=\"#setup-1\"]').click()")
    browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert browser.execute_script("return document.getElementById('setup-1').open")


@pytest.mark.browser
def test_printed(browser: Any, page: Path) -> None:
    show(browser, page, 1280, "dark")
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert 4 < len(re.findall(rb"/Type\s*/Page\b", pdf)) < 80
