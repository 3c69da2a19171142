"""The console in Chromium, with sign-in by the real Keystone and hosts of the real Nova."""

from pathlib import Path

from tests.browser.calendar_page import Calendar
from tests.browser.chromium import Browser, chromium
from tests.openstack import settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.openstack.test_console import identity
from tests.support.process import Service, eventually

HOSTS = settings.HOSTS[:3]


def _sign_in(browser: Browser, user: dict[str, str]) -> None:
    """Sign in on the page of the leases; the first password is wrong."""
    browser.open("/console/leases")
    browser.fill("User", user["user"])
    browser.fill("Password", "not the password")
    browser.click("Sign in")
    browser.find(".error, .note.bad")
    browser.fill("Password", user["password"])
    browser.click("Sign in")
    browser.find(".top nav")


def test_a_user_signs_in_drags_over_hosts_of_nova_and_deletes_the_lease(
    deploy: Deploy, lab: Project, tmp_path: Path
) -> None:
    climate = deploy("blazar", HOSTS)
    climate.register(*HOSTS)
    climate.start_manager()
    site = Service(climate.port, lab.member.token)
    with chromium(f"http://127.0.0.1:{climate.port}", tmp_path / "profile") as browser:
        _sign_in(browser, identity(lab.member))
        # The page that was asked for, without a choice: the user has one project.
        assert browser.path == "/console/leases"
        assert "climate" not in browser.js("return document.cookie")
        browser.click("Calendar")
        calendar = Calendar(browser, site)
        calendar.drag_band(24, 30)
        calendar.card("fits")
        browser.fill("Name", "in nova")
        browser.find("[data-action=reserve]").click()
        calendar.card("done")
        [lease] = site.ok("GET", "/v2/leases")["leases"]
        assert lease["user_id"] == lab.member.user_id
        browser.click("Open in nova")
        browser.find("[data-action=delete]").click()
        browser.find("dialog button.danger").click()
        eventually(lambda: not site.ok("GET", "/v2/leases")["leases"], "the lease is deleted")
        assert browser.console_errors() == []
