"""The web page in a real browser: the cluster at a moment, facets and completion, files of changes, live lists."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import trio
from browser import SETTLED, Browser, Page, executable
from in_process import ADMIN, JOE
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.ops.client.commands.ui import Loopback

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Served:
    """The page's URL for each user. ``created``: the revision at which two ConfigMaps had been created."""

    admin: str
    joe: str
    created: int
    running: Running


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    executable()
    with server_in_thread(ui=True) as running:
        ask = running.ask
        ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        maps = "/api/v1/namespaces/shop/configmaps"
        ask("POST", maps, {"metadata": {"name": "cart"}, "data": {"size": "3"}})
        ask("POST", "/api/v1/namespaces/shop/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "hush"}})
        left = ask("POST", maps, {"metadata": {"name": "till"}})
        ask("PATCH", f"{maps}/cart", {"data": {"size": "5"}})
        ask("DELETE", f"{maps}/till")
        ask("POST", maps, {"metadata": {"name": "shelf"}})
        cart = ask("GET", f"{maps}/cart")["metadata"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "cart", "uid": cart["uid"]}
        wheels = {"metadata": {"name": "wheels", "ownerReferences": [owner]}}
        ask("POST", "/api/v1/namespaces/shop/serviceaccounts", wheels)
        rules = [
            {"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        ]
        ask("POST", f"{RBAC}/namespaces/shop/roles", {"metadata": {"name": "auditor"}, "rules": rules})
        files = [{"nonResourceURLs": ["/ui/*"], "verbs": ["get"]}]
        ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "page"}, "rules": files})
        subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
        for place, kind, role in (
            ("namespaces/shop/rolebindings", "Role", "auditor"),
            ("clusterrolebindings", "ClusterRole", "page"),
        ):
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
            ask("POST", f"{RBAC}/{place}", {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects})
        with Loopback(InThread(running, ADMIN)) as admin, Loopback(InThread(running, JOE)) as joe:
            for loopback in (admin, joe):
                threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            yield Served(admin.url, joe.url, int(left["metadata"]["resourceVersion"]), running)
            admin.shutdown()
            joe.shutdown()


async def go_to(page: Page, hash_: str) -> None:
    await page.eval(f"location.hash = {json.dumps(hash_)}")
    await page.wait(f"location.hash === {json.dumps(hash_)} && {SETTLED}")


async def entries(page: Page, label: str) -> list[str]:
    """Return the texts of a list's entries."""
    links = f"[...document.querySelectorAll('[aria-label={label}] > ul > li > a')]"
    lines = f"{links}.map((a) => a.innerText.replace(/\\s+/g, ' '))"
    found: list[str] = await page.eval(lines)
    return found


async def gap(page: Page, upper: str, lower: str) -> float:
    """Return the pixels between two elements."""
    boxes = [f"document.querySelector('{each}').getBoundingClientRect()" for each in (lower, upper)]
    return float(await page.eval(f"{boxes[0]}.top - {boxes[1]}.bottom"))


async def test_the_cluster_at_a_moment(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/cluster?ns=shop&at={served.created}&kind=configmaps&name=cart")
    await page.wait(f"{SETTLED} && document.querySelector('.diff')")
    assert await entries(page, "Objects") == ["cart differs from now", "shelf not yet there", "till gone now"]
    assert "ConfigMap 2 3 ±" in await entries(page, "Kinds")
    assert {"default", "shop 6 ±"} <= set(await entries(page, "Namespaces"))
    sides = await page.text(".diff")
    assert 'size: "3"' in sides
    assert 'size: "5"' in sides
    # The change after, by its key: the state of then has the change, and only two objects differ.
    await page.press("]")
    await page.wait(f"location.hash.includes('at={served.created + 1}') && {SETTLED}")
    assert (await entries(page, "Objects"))[0] == "cart"
    assert "It has not changed since." in await page.text(".panel")
    await page.press("[")
    await page.wait(f"location.hash.includes('at={served.created}') && {SETTLED}")
    # The tree by name, and what differs.
    kinds = "[...document.querySelectorAll('[aria-label=Kinds] > ul > li:not([hidden])')]"
    shown = f"{kinds}.map((li) => li.firstChild.innerText)"
    await page.eval("document.querySelector('[name=filter]').value = 'service'")
    await page.eval("document.querySelector('[name=filter]').dispatchEvent(new Event('input'))")
    assert [each.split()[0] for each in await page.eval(shown)] == ["ConfigMap", "ServiceAccount"]  # one is chosen
    await page.eval("document.querySelector('[name=filter]').value = ''")
    await page.eval("document.querySelector('[name=differences]').click()")
    assert all("±" in each for each in (await page.eval(shown))[1:])
    # Without an object, what changed since, and what happened before.
    await go_to(page, f"#/cluster?ns=shop&at={served.created}")
    assert "configmaps/shelf" in await page.text(".different")
    assert "admin created 3 objects in shop" in (await page.text(".panel .rows")).replace("\n", " ")
    # A Secret is masked.
    await go_to(page, f"#/cluster?ns=shop&at={served.created}&kind=secrets&name=key")
    assert "Values are masked" in await page.text(".panel")
    assert "aHVzaA" not in await page.text(".panel")
    # An object that did not exist then.
    await go_to(page, f"#/cluster?ns=shop&at={served.created}&kind=configmaps&name=shelf")
    assert "It did not exist then." in await page.text(".panel")
    assert not page.errors


async def test_an_empty_answer_says_what_was_searched(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/timeline?ns=shop&q=object.name%3Dcrat")
    await page.wait(f"{SETTLED} && document.querySelector('.searched')")
    text = await page.text(".changes")
    assert "There are no changes in this time that match." in text
    assert "The history has no change of it; it begins at 2" in text
    assert "Outside of namespaces: the history has no change of it" in text
    await go_to(page, "#/object/shop/configmaps/never")
    await page.wait("document.querySelector('.panel .searched')")
    assert "The history has no change of it; it begins at 2" in await page.text(".panel")
    await go_to(page, "#/incident?ns=shop&before=5m&at=2020-01-01T00%3A00%3A00Z")
    await page.wait("document.querySelector('.searched')")
    assert "lies in that time: they were made from" in await page.text("#main")
    assert not page.errors
    # Joe may read the changes in the namespace alone.
    page = await chromium.page(f"{served.joe}#/timeline?ns=shop&q=object.name%3Dcrat")
    await page.wait(f"{SETTLED} && document.querySelector('.searched')")
    assert "Objects outside of namespaces were not searched." in await page.text(".changes")


async def test_the_slider(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/cluster?ns=shop&range=24h", width=400, height=900, dark=True)
    await page.wait(SETTLED)
    assert "now, revision" in await page.text(".moment")
    slide = "const slide = document.querySelector('[name=slide]')"
    move = slide + "; slide.value = '{}'; slide.dispatchEvent(new Event('{}'))"
    await page.eval(f"(() => {{ {move.format(500, 'input')} }})()")
    assert "12h ago" in await page.text(".moment")  # of a day
    await page.eval(f"(() => {{ {move.format(999, 'change')} }})()")
    await page.wait(f"location.hash.includes('at=20') && {SETTLED}")
    assert await page.eval("document.activeElement.name ?? 'main'") != "at"
    assert await page.eval("document.documentElement.scrollWidth <= 400")


async def test_a_visitor_of_one_namespace(chromium: Browser, served: Served) -> None:
    """Without the right to list namespaces, and with one kind in one namespace."""
    page = await chromium.page(f"{served.joe}#/cluster?ns=shop&at={served.created}&kind=configmaps")
    await page.wait(f"{SETTLED} && document.querySelector('[aria-label=Objects] li')")
    assert await entries(page, "Namespaces") == ["outside of namespaces", "shop"]
    assert await entries(page, "Objects") == ["cart differs from now", "shelf not yet there", "till gone now"]
    assert "You may not list" in await page.text("[aria-label=Kinds]")


async def test_facets_narrow_a_search_and_names_are_completed(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/search?s=1&ns=shop")
    await page.wait(f"{SETTLED} && document.querySelector('.facets button')")
    assert "configmaps 5" in (await page.text(".facets")).replace("\n", " ")
    await page.eval("[...document.querySelectorAll('.facets button')].find((b) => b.innerText === 'Delete 1').click()")
    await page.wait(f"location.hash.includes('operation=Delete') && {SETTLED}")
    assert await page.eval("document.querySelectorAll('tbody tr').length") == 1
    await page.eval("document.querySelector('input[name=resource]').focus()")
    await page.wait("document.querySelector('#known-resource option[value=configmaps]')")
    assert not page.errors


async def test_an_address_of_search_lists_what_it_names_alone(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/search?q=")
    await page.wait(SETTLED)
    assert await page.eval("document.querySelectorAll('tbody tr').length") == 0
    await page.eval("location.hash = '#/search?q=till'")  # words are for the search box
    await page.wait("location.hash === '#/happened?q=till' && document.querySelector('.rows .row')")
    assert not page.errors


async def test_the_cluster_shows_what_happened_elsewhere(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/cluster")
    await page.wait(f"{SETTLED} && document.querySelector('[aria-label=Elsewhere] .row')")
    assert "changed nothing here" in await page.text(".panel")
    assert "shop" in await page.text("[aria-label=Elsewhere]")
    await go_to(page, "#/cluster?ns=shop")
    await page.wait(f"{SETTLED} && document.querySelector('.panel .row')")
    assert not await page.eval("document.querySelector('[aria-label=Elsewhere]')")


async def test_no_gap_is_left_where_all_is_shown(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/deleted")
    await page.wait(f"{SETTLED} && document.querySelector('.export')")
    assert await gap(page, "tbody", ".export") < 20
    await go_to(page, "#/incident?before=1h")
    await page.wait(f"{SETTLED} && document.querySelector('details.rest')")
    assert await gap(page, ".causes", "details.rest") < 20


async def test_changes_are_saved_as_files(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/search?s=1&ns=shop&resource=configmaps")
    await page.wait(f"{SETTLED} && document.querySelector('.export button')")
    await page.eval("URL.createObjectURL = (blob) => { window.saved = blob; return '#/search'; }")
    texts = []
    for button in range(2):
        await page.eval(f"document.querySelectorAll('.export button')[{button}].click()")
        await page.wait("document.getElementById('live').textContent.startsWith('5 changes saved')")
        texts.append(await page.eval("window.saved.text()"))
        await page.eval("document.getElementById('live').textContent = ''")
    rows = list(csv.DictReader(texts[0].splitlines()))
    assert [(row["operation"], row["name"]) for row in rows[:2]] == [("Create", "shelf"), ("Delete", "till")]
    items = json.loads(texts[1])["items"]
    assert [item["metadata"]["name"] for item in items] == [row["revision"] for row in rows]


async def test_a_live_list_shows_new_changes_and_local_times(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/timeline?ns=shop&live=1")
    await page.wait(f"{SETTLED} && document.querySelector('tbody tr')")
    await trio.to_thread.run_sync(
        served.running.ask, "POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "just-now"}}
    )
    await page.wait("document.querySelector('tbody tr')?.innerText.includes('just-now')")
    await page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    assert "Time (UTC)" in await page.text("thead")
    await page.press("u")
    await page.wait(f"document.querySelector('thead')?.innerText.includes('UTC+5:30') && {SETTLED}")
    shown = await page.eval("document.querySelector('tbody time').textContent")
    real = await page.eval("document.querySelector('tbody time').dateTime")
    assert shown == await page.eval(
        f"new Date(Date.parse({json.dumps(real)}) + 330 * 60000).toISOString().slice(0, 19).replace('T', ' ')"
    )


async def test_what_changed_before_a_moment(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/incident?ns=shop&before=24h")
    await page.wait(f"{SETTLED} && document.querySelector('.causes li')")
    assert "admin deleted ConfigMap till in shop" in await page.text(".causes li")  # the deletion is the most unusual
    assert "deletion" in await page.text(".reasons")
    # From a revision of an object.
    await go_to(page, f"#/object/shop/configmaps/cart?rev={served.created}")
    await page.wait("document.querySelector('.facts a')")
    await page.eval("document.querySelector('.facts').open = true; document.querySelector('.facts a').click()")
    await page.wait(f"location.hash.startsWith('#/incident') && {SETTLED}")
    assert "ConfigMap cart" in await page.text(".causes")
    await go_to(page, "#/incident?at=yesterday")
    assert "is not a time" in await page.text(".incident")
    assert not page.errors


async def test_the_tree_of_an_object(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/object/shop/configmaps/cart?tab=tree")
    await page.wait(f"{SETTLED} && document.querySelector('.lanes')")
    names = await page.eval("[...document.querySelectorAll('.lanes tbody th')].map((th) => th.innerText)")
    assert names == ["configmaps/cart", "serviceaccounts/wheels"]
    assert await page.eval("document.querySelector('.lanes .depth-1').innerText") == "serviceaccounts/wheels"
    labels = await page.eval("[...document.querySelectorAll('.lanes [role=img]')].map((div) => div.ariaLabel)")
    assert labels == ["2 changes, not there at first", "1 change, not there at first"]
    assert "data.size: 3 → 5" in await page.text(".story")
    assert not page.errors


@pytest.fixture
def crowded() -> Iterator[str]:
    """Return the URL of a cluster with so many namespaces that `default` is not on the first page of their list."""
    executable()
    with server_in_thread(ui=True) as running:
        for number in range(500):
            running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": f"a-team-with-a-long-name-{number:03}"}})
        with Loopback(InThread(running, ADMIN)) as loopback:
            threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            yield loopback.url
            loopback.shutdown()


async def test_the_chosen_namespace_of_many_is_shown(chromium: Browser, crowded: str) -> None:
    page = await chromium.page(crowded + "#/cluster?ns=default")
    await page.wait(SETTLED)
    text = await page.text("main")
    assert "There was no namespace" not in text
    assert "Of more namespaces, 501 are shown." in text
    assert "default" in await page.text(".tree [aria-current]")
    await go_to(page, "#/cluster?ns=nowhere")
    assert "There was no namespace nowhere." in await page.text("main")
    overlapped = """(() => {
        const [note, next] = ["li .note", "li:has(.note) + li"].map((each) => document.querySelector(each));
        return note.getBoundingClientRect().bottom > next.getBoundingClientRect().top;
    })()"""
    assert not await page.eval(overlapped)
    assert not page.errors
