"""The folder of dashboards: versions, conflicts, names that lead elsewhere, and crashes between writes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from artimon.dashboards import dashboard_store
from artimon.dashboards.dashboard_store import (
    MAX_VERSIONS,
    VERSIONS,
    DashboardConflictError,
    DashboardLimitError,
    DashboardNotFoundError,
    DashboardStore,
    ReadOnlyDashboardsError,
)
from artimon.model.clock import ManualClock
from artimon.runtime.config_file import ConfigFileError


def text(title: str) -> str:
    return f"title: {title}\npanels:\n- {{kind: text, text: hello}}\n"


@pytest.fixture
def store(tmp_path: Path) -> DashboardStore:
    return DashboardStore(tmp_path / "dashboards", ManualClock(1_700_000_000_000))


def test_a_dashboard_is_saved_changed_and_restored(store: DashboardStore) -> None:
    first = store.save("shop", text("One"), None, "ada")
    second = store.save("shop", text("Two"), first.etag, "eddie")
    assert store.get("shop") == second
    assert [(one.number, one.user) for one in store.versions("shop")] == [(2, "eddie"), (1, "ada")]
    assert store.diff("shop", 1).splitlines()[2:5] == ["@@ -1,3 +1,3 @@", "-title: One", "+title: Two"]
    assert store.diff("shop", 2) == ""
    store.restore("shop", 1, second.etag, "eddie")
    assert store.get("shop").text == text("One")
    assert len(store.versions("shop")) == 3


def test_a_change_in_between_is_a_conflict(store: DashboardStore) -> None:
    first = store.save("shop", text("One"), None, "")
    store.save("shop", text("Two"), first.etag, "")
    for etag in (first.etag, None, "other"):
        with pytest.raises(DashboardConflictError):
            store.save("shop", text("Three"), etag, "")
        with pytest.raises(DashboardConflictError):
            store.delete("shop", etag, "")
        with pytest.raises(DashboardConflictError):
            store.restore("shop", 1, etag, "")
    assert store.get("shop").text == text("Two")
    assert len(store.versions("shop")) == 2


def test_of_two_savers_one_wins(store: DashboardStore, tmp_path: Path) -> None:
    """Two processes would have two stores over the folder."""
    first = store.save("shop", text("One"), None, "")
    other, lost = DashboardStore(tmp_path / "dashboards"), []

    def save(one: DashboardStore, title: str) -> None:
        try:
            one.save("shop", text(title), first.etag, "")
        except DashboardConflictError:
            lost.append(title)

    threads = [threading.Thread(target=save, args=(one, f"T{at}")) for at, one in enumerate([store, other] * 4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(lost) == 7
    assert len(store.versions("shop")) == 2


def test_a_shipped_dashboard_is_hidden_by_a_saved_one(store: DashboardStore) -> None:
    shipped = store.get("hosts")
    assert shipped.is_shipped
    with pytest.raises(DashboardConflictError):
        store.save("hosts", text("Mine"), None, "")
    mine = store.save("hosts", text("Mine"), shipped.etag, "")
    assert store.get("hosts").text == text("Mine")
    with pytest.raises(DashboardNotFoundError):
        store.delete("kafka", store.get("kafka").etag, "")
    store.delete("hosts", mine.etag, "")
    assert store.get("hosts") == shipped
    assert store.versions("hosts")[0].text is None
    with pytest.raises(DashboardNotFoundError, match="its deletion"):
        store.restore("hosts", 2, shipped.etag, "")
    store.restore("hosts", 1, shipped.etag, "")
    assert store.get("hosts").text == text("Mine")


def test_without_a_folder_nothing_changes() -> None:
    store = DashboardStore()
    with pytest.raises(ReadOnlyDashboardsError, match="--dashboards FOLDER"):
        store.save("shop", text("One"), None, "")
    with pytest.raises(ReadOnlyDashboardsError):
        store.delete("hosts", store.get("hosts").etag, "")
    assert store.versions("hosts") == []


@pytest.mark.parametrize("name", ["../x", "..", "a/../../x", "/etc/passwd", ".versions", "x\0y", "%2e%2e"])
def test_no_name_leads_out_of_the_folder(store: DashboardStore, tmp_path: Path, name: str) -> None:
    (tmp_path / "x.yaml").write_text(text("Secret"))
    for use in (
        lambda: store.get(name),
        lambda: store.save(name, text("One"), None, ""),
        lambda: store.delete(name, None, ""),
        lambda: store.versions(name),
        lambda: store.diff(name, 1),
        lambda: store.restore(name, 1, None, ""),
    ):
        with pytest.raises(ValueError, match="write a name of a-z"):
            use()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.yaml"]


def test_a_link_out_of_the_folder_is_not_followed(store: DashboardStore, tmp_path: Path) -> None:
    first = store.save("shop", text("One"), None, "")
    (tmp_path / "secret.yaml").write_text(text("Secret"))
    (tmp_path / "dashboards" / "leak.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(DashboardNotFoundError, match="leads out of the folder"):
        store.get("leak")
    fresh = tmp_path / "dashboards" / ".shop.yaml.new"
    fresh.symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(OSError, match="symbolic link"):
        store.save("shop", text("Two"), first.etag, "")
    assert (tmp_path / "secret.yaml").read_text() == text("Secret")


def test_an_invalid_text_is_not_saved(store: DashboardStore) -> None:
    with pytest.raises(ConfigFileError, match=r"shop\.yaml:2:1"):
        store.save("shop", "title: A\npanel: []\n", None, "")
    with pytest.raises(DashboardNotFoundError):
        store.get("shop")


def test_a_change_outside_becomes_a_version(store: DashboardStore, tmp_path: Path) -> None:
    first = store.save("shop", text("One"), None, "ada")
    file = tmp_path / "dashboards" / "shop.yaml"
    file.write_text(text("Pulled"))
    with pytest.raises(DashboardConflictError):
        store.save("shop", text("Two"), first.etag, "ada")
    store.save("shop", text("Two"), store.get("shop").etag, "ada")
    assert [(one.user, one.text) for one in store.versions("shop")] == [
        ("ada", text("Two")),
        ("", text("Pulled")),
        ("ada", text("One")),
    ]


@pytest.mark.parametrize("write", [0, 1])
def test_a_crash_between_writes_loses_nothing(
    store: DashboardStore, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    """The version is written first, then the file: whichever fails, the old text stands and saving works again."""
    first = store.save("shop", text("One"), None, "")
    real, count = os.fsync, 0

    def crash(file: int) -> None:
        nonlocal count
        count += 1
        if count == 2 * write + 1:  # each write syncs the file, then its folder
            raise OSError("no power")
        real(file)

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="no power"):
        store.save("shop", text("Two"), first.etag, "")
    monkeypatch.undo()
    assert store.get("shop") == first
    assert store.names().count("shop") == 1
    store.save("shop", text("Three"), first.etag, "")
    assert store.get("shop").text == text("Three")
    assert text("One") in [one.text for one in store.versions("shop")]


def test_versions_and_dashboards_are_bounded(store: DashboardStore, monkeypatch: pytest.MonkeyPatch) -> None:
    found = store.save("shop", text("0"), None, "")
    for number in range(MAX_VERSIONS + 5):
        found = store.save("shop", text(str(number)), found.etag, "")
    assert len(store.versions("shop")) == MAX_VERSIONS
    with pytest.raises(DashboardNotFoundError):
        store.version("shop", 1)
    monkeypatch.setattr(dashboard_store, "MAX_DASHBOARDS", 1)
    with pytest.raises(DashboardLimitError):
        store.save("second", text("A"), None, "")


def test_damaged_versions_are_passed_over(store: DashboardStore, tmp_path: Path) -> None:
    first = store.save("shop", text("One"), None, "")
    (tmp_path / "dashboards" / VERSIONS / "shop" / "000001.json").write_text("{")
    assert store.versions("shop") == []
    store.save("shop", text("Two"), first.etag, "")
    assert [one.text for one in store.versions("shop")] == [text("Two"), text("One")]
