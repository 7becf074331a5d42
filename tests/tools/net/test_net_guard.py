"""What may be reached: lists and their look-alikes, private addresses in all their clothes, names that lie (H2)."""

from __future__ import annotations

import ipaddress

import pytest
from loopback import Names

from windlass.errors import Category, ToolError, UsageError
from windlass.settings import NetworkSettings
from windlass.tools.net import AddressGuard, AddressRefused

PUBLIC = ["93.184.216.34"]


def guard(names: Names | None = None, **lists: tuple[str, ...]) -> AddressGuard:
    return AddressGuard(NetworkSettings(**lists), names or Names(example_com=[PUBLIC], sub_example_com=[PUBLIC]))


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "meant", "host", "port"),
    [
        ("http://example.com", "http://example.com/", "example.com", 80),
        ("HTTPS://EXAMPLE.com.:443/a?b#c", "https://example.com/a?b", "example.com", 443),
        ("http://example.com:8080?x=1", "http://example.com:8080/?x=1", "example.com", 8080),
        ("http://bücher.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80),
        ("http://BÜCHER.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80),
        ("http://[2606:4700::1111]:81/", "http://[2606:4700::1111]:81/", "2606:4700::1111", 81),
        ("http://my_host.example/a b", "http://my_host.example/a%20b", "my_host.example", 80),
    ],
)
def test_h2_an_address_is_read_in_one_way_and_written_anew(url: str, meant: str, host: str, port: int) -> None:
    found = guard().read(url)
    assert (found.url, found.host, found.port) == (meant, host, port)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "/etc/passwd",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com:70/_x",
        "javascript:alert(1)",
        "data:text/plain,x",
        "ws://example.com/",
        "http:/example.com/",
        "http:///path",
        "http://",
        "http://:80/",
        "http://user@example.com/",
        "http://user:password@example.com/",
        "http://example.com@evil.test/",
        "http://example.com:80@evil.test/",
        "http://example.com\\@evil.test/",
        "http://example.com\\.evil.test/",
        "http://example.com%2eevil.test/",
        "http://127.0.0%2e1/",
        "http://exa%00mple.com/",
        "http://example.com\x00.evil.test/",
        "http://example.com\r\nHost: evil.test/",
        "http://example.com\t/",
        " http://example.com/",
        "http://example .com/",
        "http://example..com/",
        "http://example.com../",
        "http://.example.com/",
        "http://-example.com/",
        "http://*.example.com/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:80:90/",
        "http://example.com:8o/",
        "http://example.com:-1/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://[127.0.0.1]/",
        "http://[::1]x/",
        "http://::1/",
        "http://" + "a" * 64 + ".com/",
        "http://" + "a." * 200 + "com/",
        "http://example.com/" + "a" * 10_000,
        "http://xn--\u0430pple.com/",
        "http://exa\u00admple.com\u2044evil.test/",
        "http://example\u2024com/",
    ],
)
def test_h2_what_parsers_could_disagree_about_is_refused(url: str) -> None:
    with pytest.raises(ToolError) as caught:
        guard().read(url)
    assert caught.value.failure.category is Category.LOGIC
    assert "password" not in str(caught.value).replace("a user or a password", "")


NUMBERS = "0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001 2130706433 127.1 127.0.1 127.0.0.01 0 0x 1.2.3.4.5 256.1.1.1"


@pytest.mark.parametrize("host", [*NUMBERS.split(), "0x7F.1", "127.0.0.1.0x1", "１２７.1", "example.0x7f000001"])
def test_h2_an_ipv4_address_has_four_decimal_numbers_or_is_none(host: str) -> None:
    with pytest.raises(ToolError, match=r"IPv4|not the name of a host"):
        guard().read(f"http://{host}/")


# ── what is public ───────────────────────────────────────────────────────────────────────────────────

PRIVATE = [
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.1.1", "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.64.0.1", "100.100.100.200"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1"),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1", "3fff::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1"),
    *("::127.0.0.1", "::10.0.0.1", "::ffff:0:127.0.0.1"),
    *("2002:7f00:1::", "2002:a00:1::1", "2002:5db8:d822::1"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:7f00:1::", "2001:10::1", "2001:20::1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::5db8:d822", "5f00::1", "4000::1"),
]


@pytest.mark.parametrize("address", PRIVATE)
async def test_h2_no_address_that_is_not_public_is_reached_by_number_or_by_name(address: str) -> None:
    literal = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused) as by_number:
        await guard().check(f"http://{literal}/")
    assert by_number.value.failure.category is Category.PERMISSION
    assert by_number.value.failure.final
    with pytest.raises(AddressRefused, match=r"^Blocked: evil\.test \(.*\) is "):
        await guard(Names(evil_test=[[address]])).check("http://evil.test/")


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::1.1.1.1"]
)
async def test_h2_public_addresses_are_reached(address: str) -> None:
    target = await guard(Names(good_test=[[address]])).check("https://good.test/x")
    assert [*target.addresses] == [ipaddress.ip_address(address).compressed]
    assert (target.url, target.host, target.port) == ("https://good.test/x", "good.test", 443)


async def test_h2_one_private_address_among_public_ones_refuses_the_name() -> None:
    with pytest.raises(AddressRefused, match=r"evil\.test \(10\.0\.0\.1\)"):
        await guard(Names(evil_test=[[*PUBLIC, "10.0.0.1"]])).check("http://evil.test/")
    with pytest.raises(AddressRefused, match="link-local"):
        await guard(Names(evil_test=[["fe80::1%eth0"]])).check("http://evil.test/")


async def test_h2_a_name_without_an_address_and_a_resolver_that_breaks_are_transient() -> None:
    for names in (Names(), Names(gone_test=[[]]), Names(gone_test=[["no address"]])):
        with pytest.raises(ToolError, match=r"gone\.test was not found") as caught:
            await guard(names).check("http://gone.test/")
        assert caught.value.failure.category is Category.TRANSIENT


# ── your own network ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("opened", "reached", "refused"),
    [
        ("localhost:8080", ["http://localhost:8080/"], ["http://localhost:8081/", "http://127.0.0.1:8080/"]),
        ("localhost", ["http://localhost/", "http://localhost.:99/"], ["http://box.corp.test/", "http://127.0.0.1/"]),
        ("10.0.0.5", ["http://10.0.0.5/", "http://box.corp.test/", "http://[::ffff:10.0.0.5]/"], ["http://10.0.0.6/"]),
        ("10.0.0.5:80", ["http://10.0.0.5/"], ["http://10.0.0.5:81/", "http://10.0.0.6/"]),
        ("10.0.0.0/8", ["http://10.9.9.9:9/", "http://box.corp.test/"], ["http://11.0.0.1.test/", "http://127.0.0.1/"]),
        ("*.corp.test", ["http://box.corp.test/"], ["http://corp.test/", "http://evilcorp.test/", "http://10.0.0.5/"]),
        ("::1", ["http://[::1]/"], ["http://127.0.0.1/", "http://[::2]/"]),
        ("[::1]:81", ["http://[::1]:81/"], ["http://[::1]/"]),
        ("fd00::/8", ["http://[fd12::1]/"], ["http://[fc00::1]/"]),
        ("meta.test", [], ["http://meta.test/"]),
        ("169.254.169.254", ["http://169.254.169.254/", "http://meta.test/"], ["http://169.254.169.253/"]),
    ],
)
async def test_h2_private_opens_exactly_what_it_names(opened: str, reached: list[str], refused: list[str]) -> None:
    names = Names(
        localhost=[["127.0.0.1", "::1"]],
        box_corp_test=[["10.0.0.5"]],
        corp_test=[["10.0.0.5"]],
        evilcorp_test=[["10.0.0.5"]],
        meta_test=[["169.254.169.254"]],
    )
    here = guard(names, private=(opened,))
    for url in reached:
        assert (await here.check(url)).addresses
    for url in refused:
        with pytest.raises(ToolError):
            await here.check(url)


@pytest.mark.parametrize(
    "entry", ["", "http://example.com", "a b", "10.0.0.0/99", "*.10.0.0.1", "x:99999", "a*b.com", "*"]
)
def test_h2_an_entry_of_a_list_that_means_nothing_is_said_at_once(entry: str) -> None:
    with pytest.raises(UsageError, match=r"network\.deny"):
        guard(deny=(entry,))


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────

LOOK_ALIKES = [
    "evil-example.com",
    "evilexample.com",
    "example.com.evil.test",
    "example.comm",
    "example.co",
    "xexample.com",
    "example.com-evil.test",
    "sub.example.com",
    "example.com..",
    "ex\u0430mple.com",
    "examp\u217ce.com",
    "example.com\u3002evil.test",
    "xn--exmple-4nf.com",
    "exаmple.com.",
    "example%2ecom",
    "example.com%00.evil.test",
    "example.com\x00",
    "evil.test\\example.com",
    "example.com@evil.test",
    "evil.test#example.com",
    "evil.test?example.com",
    "evil.test/example.com",
    "93.184.216.34",
    "1572395042",
    "other.org",
    "org",
    "example.org",
    "evilexample.org",
    "sub.example.org.evil.test",
]


@pytest.mark.parametrize("host", LOOK_ALIKES)
async def test_h2_no_look_alike_fits_an_allow_list(host: str) -> None:
    class Anywhere:
        async def __call__(self, name: str, port: int) -> list[str]:
            return PUBLIC

    here = AddressGuard(NetworkSettings(allow=("example.com", "*.example.org")), Anywhere())
    assert not here.allows_host(host)
    with pytest.raises(ToolError):
        await here.check(f"http://{host}/")


@pytest.mark.parametrize(
    "host", ["example.com", "EXAMPLE.COM", "example.com.", "a.example.org", "a.b.Example.Org.", "exam\u212ale.com"]
)
def test_h2_an_allow_list_fits_its_hosts_in_every_spelling(host: str) -> None:
    here = guard(allow=("example.com", "*.EXAMPLE.org", "examkle.com"))
    assert here.allows_host(host)
    assert here.read(f"http://{host}/").host in ("example.com", "a.example.org", "a.b.example.org", "examkle.com")


async def test_h2_a_deny_list_holds_before_everything_else_and_for_addresses_too() -> None:
    names = Names(example_com=[PUBLIC], other_test=[["1.1.1.1"]], box_test=[["10.0.0.5"]])
    here = guard(
        names, allow=("*.test", "example.com"), deny=("example.com", "1.1.1.0/24", "box.test"), private=("box.test",)
    )
    for url in ("http://example.com/", "http://EXAMPLE.com./", "http://other.test/", "http://box.test/"):
        with pytest.raises(AddressRefused, match=r"network\.deny"):
            await here.check(url)
    assert not here.allows_host("example.com")
    assert here.allows_host("other.test"), "by its name alone"
    only_a_port = guard(deny=("example.com:81",))
    assert only_a_port.allows_host("example.com")
    assert not only_a_port.allows_host("example.com", 81)


async def test_h2_private_does_not_add_to_an_allow_list() -> None:
    here = guard(Names(), allow=("example.com",), private=("127.0.0.1",))
    with pytest.raises(AddressRefused, match=r"network\.allow"):
        await here.check("http://127.0.0.1/")
    both = guard(Names(), allow=("127.0.0.1",), private=("127.0.0.1",))
    assert (await both.check("http://127.0.0.1/")).addresses == ("127.0.0.1",)
