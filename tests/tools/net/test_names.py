"""Whatever is read out of an address, the client reads the same: the check and the connection mean one host (H2)."""

from __future__ import annotations

import httpx2
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.tools.net.guard import why_not_public
from windlass.tools.net.names import host_of, literal, read_address

PIECES = [
    *(
        "http://",
        "https://",
        "HTTP://",
        "http:/",
        "//",
        "/",
        "\\",
        "@",
        ":",
        "#",
        "?",
        "[",
        "]",
        "%",
        "%2e",
        "%40",
        "%00",
        ".",
    ),
    *("example.com", "evil.test", "127.0.0.1", "0x7f", "017", "::1", "::ffff:10.0.0.1", "xn--", "-", "_", "80", "443"),
    *(
        "。",
        "．",
        "ß",
        "а",
        "\u200b",
        "\u202e",
        "\u00ad",
        "１",
        "\ud800",
        "\t",
        "\r\n",
        "\x00",
        " ",
        "a",
        "A",
        "&",
        "=",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("http://example.com:80@evil.test/")
@example("http://example.com#@evil.test/")
@example("http://example.com\\@evil.test/")
@example("http://example.com/ #")
@example("https://example.com:443")
@example("http://[::ffff:127.0.0.1]:8080/")
@example("http://bücher.example/ä?ö")
def test_h2_the_client_reads_an_address_as_the_guard_does(text: str) -> None:
    try:
        found = read_address(text)
    except ValueError:
        return
    url = httpx2.URL(found.url)
    assert url.scheme == found.scheme
    assert url.raw_host.decode() == found.host
    assert (url.port or {"http": 80, "https": 443}[url.scheme]) == found.port
    assert not url.userinfo
    assert read_address(found.url) == found
    assert read_address(str(url)).origin == found.origin


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=20))
def test_h2_the_spelling_of_a_host_is_final(text: str) -> None:
    try:
        host = host_of(text)
    except ValueError:
        return
    assert host.isascii()
    assert host == host.lower()
    assert host_of(f"[{host}]" if ":" in host else host) == host


@given(st.ip_addresses())
def test_h2_what_is_called_public_is_public_to_python_too(address: object) -> None:
    ip = literal(str(address))
    assert ip is not None
    if why_not_public(ip) is None and not str(ip).startswith("64:ff9b::"):
        assert ip.is_global
        assert not ip.is_multicast
