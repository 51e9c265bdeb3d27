"""The page as somebody uses it, in a real browser, from disk and without a network."""

import io
import json
import math

import pytest
from browser import chromium, opened, until
from PIL import Image
from test_page import ATTACK, described, make_run

from gimbal.report.files import JsonLines
from gimbal.report.page import write_report

pytestmark = pytest.mark.slow
MANY = 10_000


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def written(step, group, sample, task="sum", words=12):
    """A rollout whose numbers can be foretold."""
    texts = [f"{group}", *[f" w{(sample * 7 + i) % 50}" for i in range(words - 1)]]
    solved = (group + sample) % 3 == 0
    return described(
        step,
        group=group,
        sample=sample,
        task=f"{task}:{group}",
        prompt=f"Prompt of {group}",
        answer=str(group),
        text="".join(texts),
        pieces=texts,
        score=float(solved),
        solved=solved,
        scores={"right": float(solved)},
        stop="length" if words > 15 else "stop",
        version=[step - 1 - i % 3 if step > 2 else 0 for i in range(words)],
        behavior=[-0.1 * i for i in range(words)],
        proximal=[-0.1 * i - (0.5 if i == 2 else 0) for i in range(words)],
        advantage=[1.0 if solved else -0.5] * words,
        entropy=[0.2 * i for i in range(words)],
        mask=[int(i != 3) for i in range(words)],
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """10,000 rollouts: 1,250 groups of 8, 100 steps."""
    run = make_run(tmp_path_factory.mktemp("many") / "many", steps=100)
    with (run / "rollouts.jsonl").open("w") as file:
        for g in range(MANY // 8):
            for s in range(8):
                file.write(json.dumps(written(1 + g // 13, g, s, words=20 if g % 10 == 0 else 12)) + "\n")
    return "file://" + str(write_report(run))


def shown(page):
    return int(page.locator("#found").inner_text().split(" of ")[0].replace(",", ""))


def test_ten_thousand_rollouts_stay_smooth(browser, many):
    with opened(browser, many) as page:
        assert shown(page) == MANY
        assert page.locator("#list .row").count() < 80  # only those in view are made
        still, scrolled = page.evaluate("""async () => {
          const list = $("list"), middle = (all) => all.sort((a, b) => a - b)[all.length >> 1], times = [[], []];
          for (let i = 0; i < 80; i++) {
            const from = performance.now(), scrolls = i % 2;
            if (scrolls) list.scrollTop = (list.scrollHeight * i) / 80;
            await new Promise(requestAnimationFrame);
            times[scrolls].push(performance.now() - from);
          }
          return times.map(middle);
        }""")
        assert scrolled < 2 * still + 20, (still, scrolled)  # milliseconds of a frame, on a machine that may be busy
        page.evaluate("$('list').scrollTop = $('list').scrollHeight")
        page.wait_for_selector(f"#row-{MANY - 1}")
        spent = page.evaluate(
            "(() => { const from = performance.now(); filter(); return performance.now() - from; })()"
        )
        assert spent < 1000  # milliseconds; about 10 where nothing else runs


def test_search_and_filters(browser, many):
    rows = [(1 + g // 13, g, (g + s) % 3 == 0, 20 if g % 10 == 0 else 12) for g in range(MANY // 8) for s in range(8)]
    cases = [
        ({"words": "prompt of 77"}, sum(str(g).startswith("77") for _, g, _, _ in rows)),
        ({"task": "sum:1249"}, 8),
        ({"outcome": "wrong"}, sum(not solved for _, _, solved, _ in rows)),
        ({"outcome": "cut"}, sum(length == 20 for *_, length in rows)),
        ({"score-low": "0.5"}, sum(solved for _, _, solved, _ in rows)),
        ({"length-high": "12", "outcome": "solved"}, sum(solved and length == 12 for _, _, solved, length in rows)),
        ({"step-low": "3", "step-high": "4"}, sum(step in (3, 4) for step, *_ in rows)),
        ({"words": "nothing has this"}, 0),
    ]
    with opened(browser, many) as page:
        for fields, count in cases:
            page.click("#filter button[type=reset]")
            until(page, f"found.length === {MANY}")
            for name, value in fields.items():
                field = page.locator(f"#filter [name={name}]")
                field.select_option(value) if name == "outcome" else field.fill(value)
            until(page, f"found.length === {count}")
            assert shown(page) == count


def test_sorting_and_keys_in_the_list(browser, many):
    with opened(browser, many) as page:
        for name, first in (("length", 20), ("length", 12), ("step", 97), ("reward", 1)):
            page.click(f"#heads button:has-text('{name}')")
            column = ["reward", "step", "length"].index(name)
            assert page.locator("#list .row").first.locator("span").nth(column).inner_text() == str(first)
        page.focus("#list")
        page.keyboard.press("End")
        assert page.evaluate("found.indexOf(chosen)") == MANY - 1
        page.keyboard.press("ArrowUp")
        page.wait_for_selector("#list [aria-selected=true]")
        row = page.locator("#list [aria-selected=true]")
        assert row.get_attribute("aria-posinset") == str(MANY - 1)
        assert page.get_attribute("#list", "aria-activedescendant") == row.get_attribute("id")
        page.wait_for_selector("#members .chosen")
        until(page, "document.querySelector('#members .chosen').rollout === chosen")
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#numbers:not([hidden])")
        assert "decision 0" in page.inner_text("#numbers") and page.inner_text("#spoken")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A group of three: one plain, one with turns and a tool, one that attacks."""
    talk = written(5, 4, 1, words=9) | {"turn": [0, 0, 0, 0, 0, 1, 1, 1, 1], "part": [0, 0, 0, 2, 2, 0, 0, 2, 2]}
    talk["mask"] = [1, 1, 1, 0, 0, 1, 1, 0, 0]
    evil = described(5, group=4, sample=2, proximal=[-1.0, -0.5, 0.0], pieces=[ATTACK, "\u202e", "\n"])
    evil |= {"task": "sum:4", "prompt": "Prompt of 4", "answer": "4"}
    run = make_run(
        tmp_path_factory.mktemp("small") / "<img src=x onerror=a()>", rollouts=[written(5, 4, 0), talk, evil]
    )
    return "file://" + str(write_report(run)).replace("<", "%3C").replace(">", "%3E").replace(" ", "%20")


def numbers(page, member, decision):
    token = page.locator(f".member:nth-child({member}) [data-i='{decision}']")
    token.scroll_into_view_if_needed()
    page.wait_for_timeout(100)  # scrolling hides the numbers
    token.hover()
    page.wait_for_selector("#numbers:not([hidden])")
    rows = page.locator("#numbers tr").all_inner_texts()
    return dict(row.split("\t") for row in rows)


def test_a_decisions_numbers_and_colours(browser, small):
    with opened(browser, small) as page:
        told = numbers(page, 1, 2)
        assert (
            told["log-prob"] == "-0.2"
            and told["advantage"] == "-0.5"
            and told["entropy"] == "0.4"
            and told["age"] == "2"
        )
        assert float(told["ratio"]) == pytest.approx(math.exp(-0.5), abs=1e-4)
        assert float(told["discrepancy"]) == pytest.approx(math.exp(-0.7) - math.exp(-0.2), abs=1e-4)
        assert numbers(page, 1, 3)["mask"] == "0" and told["mask"] == "1"
        tint = ".member:nth-child(1) [data-i='%d']"

        def tone(decision):
            found = page.locator(tint % decision)
            return found.evaluate("node => parseFloat(node.style.getPropertyValue('--t'))"), "below" in (
                found.get_attribute("class") or ""
            )

        for quantity, weak, strong, below in (
            ("log-prob", 1, 11, True),
            ("ratio", 1, 2, True),
            ("discrepancy", 1, 2, True),
            ("entropy", 1, 11, False),
            ("age", 0, 2, False),
            ("mask", 2, 3, False),
        ):
            page.select_option("#colour", quantity)
            assert tone(weak)[0] < tone(strong)[0] and tone(strong)[1] == below, quantity
        page.select_option("#colour", "advantage")
        assert page.locator(".member:nth-child(3) [data-i='0']").evaluate("n => !n.classList.contains('below')")
        page.mouse.move(2, 2)
        assert page.locator("#numbers").is_hidden()


def test_turns_are_folded(browser, small):
    with opened(browser, small) as page:
        assert page.locator(".member:nth-child(2) .tokens").count() == 0, "turns are read as a conversation"
        page.select_option("#reading", "tokens")
        folds = page.locator(".member:nth-child(2) details")
        assert [
            (fold.get_attribute("class") or "", fold.get_attribute("open") is not None) for fold in folds.all()
        ] == [
            ("", True),
            ("observation", False),
            ("", True),
            ("observation", False),
        ]
        said = folds.nth(1).locator("summary").text_content()
        assert said == "turn 0 observation 2 decisions  w9 w10", "of what it holds, and no more"
        page.focus(".member:nth-child(2) .tokens")
        for _ in range(4):
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(40)
        assert page.locator(".tokens .at").get_attribute("data-i") == "5"  # what is folded away is skipped
        folds.nth(1).locator("summary").press("Enter")
        assert page.locator(".member:nth-child(2) [data-i='3']").is_visible()
        assert page.locator(".member:nth-child(1) details").count() == 0


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A group in which 2 and 3 split off 0 after 4 decisions, 4 after 6, 5 splits off 4 after 7 and 6 after 3; 1 stands alone."""
    forks = {2: (0, 4), 3: (0, 4), 4: (0, 6), 5: (4, 7), 6: (4, 3)}
    rows = []
    for sample in range(7):
        row = written(5, 4, sample, words=9) | {"pieces": [f" {sample}.{i}" for i in range(9)]}
        if sample in forks:
            row |= {"fork": list(forks[sample]), "mask": [int(i >= forks[sample][1]) for i in range(9)]}
        rows.append(row)
    return "file://" + str(write_report(make_run(tmp_path_factory.mktemp("tree") / "tree", rollouts=rows)))


OUTLINE = """() => {
  const told = (node) => {
    const tokens = node.querySelectorAll(":scope > .tokens span"), ids = [...tokens].map((token) => token.textContent.trim());
    const below = node.querySelector(":scope > .branches");
    return below ? [ids.join(" "), ...[...below.children].map(told)] : ids.join(" ");
  };
  return [...$("members").children].map(told);
}"""


def test_branches_are_drawn_as_trees(browser, tree):
    def own(sample, *decisions):
        return " ".join(f"{sample}.{i}" for i in decisions)

    with opened(browser, tree) as page:
        assert page.evaluate(OUTLINE) == [
            [
                own(0, 0, 1, 2),  # 6 left 4 before 4 left 0, so what it shares is of 0
                [
                    own(0, 3),
                    [
                        own(0, 4, 5),
                        own(0, 6, 7, 8),
                        [own(4, 6), own(4, 7, 8), own(5, 7, 8)],
                    ],
                    own(2, 4, 5, 6, 7, 8),
                    own(3, 4, 5, 6, 7, 8),
                ],
                own(6, 3, 4, 5, 6, 7, 8),
            ],
            own(1, *range(9)),
        ]
        assert page.locator("#members .shared > header").first.inner_text() == "shared by 6 rollouts, mean reward 0.333"
        assert page.locator("#members .member").count() == 7
        for sample in (5, 0):  # the one that is chosen is marked where it ends, and read by keyboard
            page.evaluate(f"choose(state.rollouts.find((r) => r.sample === {sample}))")
            until(page, f"document.querySelector('#members .chosen')?.rollout.sample === {sample}")
            page.focus("#list")
            page.keyboard.press("Enter")
            page.keyboard.press("ArrowRight")
            page.wait_for_selector("#numbers:not([hidden])")
            assert f'" {sample}.{7 if sample else 6}" decision {7 if sample else 6}' in page.inner_text("#numbers")
        off = [text.strip() for text in page.locator("#members .off").all_inner_texts()]
        assert off == ["0.3", "1.3"], "what is shared stands as the one that drew it has it, where it counts"


def test_a_film_plays_on_the_page_and_a_control_run_has_no_wrong_rollouts(browser, tmp_path):
    film = io.BytesIO()
    images = [Image.new("RGB", (60, 40), colour) for colour in ("red", "blue")]
    images[0].save(film, "WEBP", save_all=True, append_images=images[1:], duration=100)
    paced = written(5, 4, 0) | {"solved": None}
    run = make_run(tmp_path / "walk", rollouts=[paced])
    (run / "film.webp").write_bytes(film.getvalue())
    with opened(browser, "file://" + str(write_report(run))) as page:
        until(page, "document.querySelector('#films img').naturalWidth === 60")
        assert page.locator("#conclusion button").count() == 0
        assert "solved" not in page.inner_text(".member header")


def test_text_of_a_model_is_text(browser, small):
    with opened(browser, small) as page:
        assert page.title() == "<img src=x onerror=a()> · gimbal"
        assert page.locator("img, #members script, #board script").count() == 0
        assert (
            page.locator(".member:nth-child(3) [data-i='0']").text_content().startswith("</script><img src=x onerror")
        )
        assert page.locator(".member:nth-child(3) [data-i='1']").text_content() == "⟨U+202E⟩"
        assert page.locator("h1").inner_text() == "<img src=x onerror=a()>"


def test_markup_that_got_in_would_not_run(browser, small):
    with opened(browser, small, expected="inline event handler") as page:
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b id=evil onclick=\"document.title=1\">x</b>')")
        page.evaluate("document.querySelector('#evil').click()")
        assert page.title() != "1"


CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const luminance = (...layers) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const layer of layers) {
      canvas.fillStyle = layer;
      canvas.fillRect(0, 0, 1, 1);
    }
    const linear = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const card = getComputedStyle($("group")).backgroundColor;
  return [...document.querySelectorAll(".tokens span[data-i]")].map((node) => {
    const { color, backgroundColor } = getComputedStyle(node), [a, b] = [luminance(card, backgroundColor), luminance(color)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_light_and_dark_on_wide_and_narrow(browser, small, scheme, width):
    with opened(browser, small, width=width, scheme=scheme, touch=width < 500) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing to scroll sideways
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(247, 247, 245)") == (scheme == "light")
        for quantity in ("advantage", "log-prob", "entropy"):
            page.select_option("#colour", quantity)
            assert min(page.evaluate(CONTRAST)) > 4.5, quantity
        if width < 500:
            page.locator(".member:nth-child(1) [data-i='2']").tap()
            assert page.locator("#numbers").is_visible()
            box = page.locator("#numbers").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground


def test_several_runs_seeds_and_curves(browser, tmp_path):
    recipe = "recipe: demo\nrun: {{seed: {}, clip: {}}}\n"
    runs = [make_run(tmp_path / f"r{i}", steps=30, recipe=recipe.format(i % 3, (0.2, 0.3)[i // 3])) for i in range(6)]
    JsonLines(runs[5] / "metrics.jsonl").append(
        {"step": 31, "loss": None, "pass_rate": 0.0, "tokens": 310.0, "time/step": 1.0}
    )
    url = "file://" + str(write_report(*runs))
    with opened(browser, url) as page:
        assert page.inner_text("h1") == "6 runs" == page.title().removesuffix(
            " · gimbal"
        ) and "demo (clip=0.2) 0.750 (3 seeds" in page.inner_text("#conclusion")
        assert page.locator("#differs tbody tr").all_inner_texts() == ["clip\t0.2\t0.3"]
        plot = "[...drawn].find(([card]) => card.names[0] === 'pass_rate')[1]"
        assert page.evaluate(f"{plot}.series.filter((s) => s.label.startsWith('demo')).map((s) => s.label)") == [
            "demo (clip=0.2) (3 seeds)",
            "demo (clip=0.3) (3 seeds)",
        ]
        assert page.evaluate(f"{plot}.bands.length") == 2
        raw = page.evaluate(f"{plot}.data[1]")
        assert raw[14] == pytest.approx(0.5)
        page.fill("#smooth", "0.9")
        assert page.evaluate(f"{plot}.data[1]")[14] < 0.5
        page.uncheck("#band")
        assert page.evaluate(f"{plot}.series.length") == 7
        page.check("#log")
        assert page.evaluate(f"{plot}.scales.y.distr") == 3
        page.locator("#curves .families input").first.uncheck()
        assert page.evaluate(f"{plot}.series.length") == 4
        page.select_option("#across", "decisions")
        assert page.evaluate(f"{plot}.data[0]")[:2] == [10, 20]
        page.fill("#which", "loss")
        assert page.locator("#charts .chart h3").all_inner_texts() == ["Loss"]
        page.click("#board thead button:has-text('seed')")
        seeds = page.locator("#board tbody tr td:nth-child(3)").all_inner_texts()
        assert seeds == sorted(seeds, reverse=True)
        page.locator("#board thead button:has-text('seed')").press("Enter")
        assert page.locator("#board tbody tr td:nth-child(3)").all_inner_texts() == sorted(seeds)


def test_a_wrong_rollout_is_one_click_away(browser, many):
    with opened(browser, many) as page:
        page.click("#conclusion button")
        until(page, "!chosen.solved && found.every((r) => !r.solved)")
        assert page.locator("#list").bounding_box()["y"] < 850


def test_on_a_phone_a_choice_leads_to_its_group(browser, small):
    with opened(browser, small, width=390, height=700, touch=True) as page:
        for choose in ("#conclusion button", "#list .row:nth-child(2)"):
            page.evaluate("scrollTo(0, 0)")
            page.tap(choose)
            until(page, "Math.abs($('group').getBoundingClientRect().top) < 120")
            assert "Prompt of 4" in page.inner_text("#group .prompt")


def test_faults_are_red(browser, tmp_path):
    run = make_run(tmp_path / "a", recipe="recipe: demo\nrun: {seed: 0, faults: {logprob_noise: 0.1}}\n")
    with opened(browser, "file://" + str(write_report(run))) as page:
        fault = page.locator("#signs .fault")
        assert "logprob_noise=0.1" in fault.inner_text()
        assert fault.evaluate("node => getComputedStyle(node).color") == "rgb(179, 38, 30)"


def test_images_stand_side_by_side_with_their_rewards(browser, tmp_path):
    """8x8 pixels from the file itself, in a page without a network; the click on one goes to its rollout."""
    made = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAAC0lEQVR4nGNgQAYAAA4AAdKIxzoAAAAASUVORK5CYII="
    rows = [written(5, 4, s) | {"image": made, "path": made} for s in range(3)]
    run = make_run(tmp_path / "images", rollouts=[*rows, written(6, 5, 0)])
    with opened(browser, "file://" + str(write_report(run))) as page:
        page.locator("#list .row", has_text="sum:4").first.click()
        images = page.locator(".gallery img")
        assert images.count() == 3 and page.locator(".member img").count() == 6
        assert page.locator(".member img.path").count() == 3
        until(page, "document.querySelectorAll('.gallery img')[2].naturalWidth === 2")
        assert page.locator(".gallery .reward").all_inner_texts() == ["0", "0", "1"]
        page.locator(".gallery button").nth(2).click()
        assert page.locator(".member.chosen").evaluate("node => [...node.parentNode.children].indexOf(node)") == 2
        page.locator("#list .row", has_text="sum:5").first.click()
        until(page, "!document.querySelector('.gallery')")


def test_points_are_densities_over_training(browser, tmp_path):
    """Twelve steps in six windows of two, on one pair of axes; of every run, and none where samples are no points."""
    rows = [
        written(step, step, s) | {"point": [3.5 if step > 6 else -3.5, 1.2] if s else [0.0, -0.5]}
        for step in range(1, 13)
        for s in range(3)
    ]
    runs = [make_run(tmp_path / name, rollouts=rows) for name in ("a", "b")]
    with opened(browser, "file://" + str(write_report(*runs, path=tmp_path / "both.html"))) as page:
        assert page.locator(".densities").count() == 2 and page.locator(".densities figure").count() == 12
        captions = page.locator(".densities").first.locator("figcaption").all_inner_texts()
        assert captions[0] == "steps 1 to 2 (6)" and captions[-1] == "steps 11 to 12 (6)"
        assert "from -4 to 4" in page.inner_text("#densities")
        cells = """[...document.querySelectorAll('.densities figure')].map((f) => [...f.querySelectorAll('rect[fill-opacity]')]
            .map((r) => ['x', 'y', 'fill-opacity'].map((name) => Number(r.getAttribute(name)))))"""
        first, *_, last = page.evaluate(cells)[:6]
        assert sorted(first) == [[2, 12, 1.0], [18, 20, 0.75]] and sorted(last) == [[18, 20, 0.75], [33, 12, 1.0]]
    run = make_run(tmp_path / "plain", rollouts=[written(1, 0, 0)])
    with opened(browser, "file://" + str(write_report(run))) as page:
        assert page.inner_text("#densities") == ""
