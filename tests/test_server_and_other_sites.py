"""The server answers nobody without its token, and no page of another site; nobody silences it before the token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from test_serve import error_of, query, run_folder, server, serving  # noqa: F401 (fixtures)
from test_server_under_abuse import raw

from fnftg.serve.auth import COOKIE, AuthMiddleware, digest

# Before the token


def test_cookie_cannot_block_the_server(run_folder: Path) -> None:  # noqa: F811
    """Python's own parser takes time that grows with the square of the backslashes."""
    with serving(run_folder, token="s3cret") as client:
        for backslashes, status in ((60_000, 431), (16_000, 401)):
            headers, took = {"Cookie": f'{COOKIE}="' + "\\" * backslashes + '"'}, []
            for _ in range(5):
                start = time.perf_counter()
                assert httpx.get(f"{client.base_url}/v1/model", headers=headers).status_code == status
                took.append(time.perf_counter() - start)
            assert min(took) < 0.4


def test_cookie_is_found_among_others() -> None:
    guard = AuthMiddleware(None, "s3cret")  # type: ignore[arg-type]
    value = digest("cookie of s3cret")
    for right in (
        f"{COOKIE}={value}",
        f"a=b; {COOKIE}={value}",
        f"{COOKIE}=old;{COOKIE}={value} ; c",
        f"a;{COOKIE}={value}",
    ):
        assert guard.is_cookie([right]) and guard.is_cookie(["x=y", right])
    for wrong in ("", COOKIE, f"{COOKIE}=", f"x{COOKIE}={value}", f"{COOKIE}={value}x", f'a="{COOKIE}={value}"', "ü=é"):
        assert not guard.is_cookie([wrong])
    assert not AuthMiddleware(None, None).is_cookie([f"{COOKIE}={value}"])  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["GET /?" + "&" * 60_000, "GET /?" + "token=x&" * 3000, "GET /" + "a" * 60_000])
def test_long_address_is_refused(head: str, run_folder: Path, server: httpx.Client) -> None:  # noqa: F811
    with raw(server, f"{head} HTTP/1.1", "Host: localhost", "") as connection:
        assert connection.recv(12).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "OPTIONS", "TRACE", "X"])
def test_odd_methods_and_paths_need_the_token(method: str, run_folder: Path) -> None:  # noqa: F811
    paths = (
        "/v1/model",
        "//v1/model",
        "/healthz/../v1/model",
        "/healthz/",
        "/V1/MODEL",
        "/v1/model?x=/healthz",
        "/%76",
    )
    with serving(run_folder, token="s3cret") as client:
        for path in paths:
            with raw(client, f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", "") as connection:
                assert connection.recv(12) == b"HTTP/1.1 401", path


# Pages of other sites


OWN = "127.0.0.1:8000"
REQUESTS = [
    # Host, the other headers, whether it is answered without a token
    (OWN, {}, True),
    ("localhost", {}, True),
    ("LOCALHOST:1", {}, True),
    ("[::1]:8000", {}, True),
    ("evil.example", {}, False),
    ("evil.example:8000", {}, False),
    ("127.0.0.1.evil.example", {}, False),
    ("localhost.evil.example", {}, False),
    ("203.0.113.7", {}, False),
    ("", {}, False),
    ("user@localhost", {}, False),
    ("my.example", {}, True),  # allowed
    (OWN, {"Origin": f"http://{OWN}"}, True),
    ("localhost", {"Origin": "http://localhost:80"}, True),
    ("my.example", {"Origin": "https://my.example"}, True),
    ("fnftg", {"Origin": "https://my.example"}, False),
    (OWN, {"Origin": "https://evil.example"}, False),
    (OWN, {"Origin": f"http://{OWN}.evil.example"}, False),
    (OWN, {"Origin": "http://127.0.0.1:3000"}, False),
    (OWN, {"Origin": "null"}, False),
    (OWN, {"Origin": ""}, False),
    (OWN, {"Origin": "http://[::1"}, False),
    (OWN, {"Origin": f"file://{OWN}"}, False),
    (OWN, {"Sec-Fetch-Site": "same-origin"}, True),
    (OWN, {"Sec-Fetch-Site": "none"}, True),
    (OWN, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False),
    (OWN, {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, False),
    (OWN, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
]


@pytest.fixture(scope="module")
def named_server(run_folder: Path) -> Iterator[httpx.Client]:  # noqa: F811
    with serving(run_folder, allowed_hosts=["my.example"]) as client:
        yield client


@pytest.mark.parametrize(("host", "headers", "answered"), REQUESTS)
def test_only_own_pages_and_programs_are_answered(
    host: str, headers: dict[str, str], answered: bool, named_server: httpx.Client
) -> None:
    before = named_server.state.metrics.reloads.labels("done")._value.get()  # type: ignore[attr-defined]
    for method, path, body in (
        ("GET", "/v1/model", None),
        ("POST", "/v1/predict", query()),
        ("POST", "/v1/admin/reload", None),
    ):
        if path == "/v1/admin/reload" and answered:
            continue  # it takes its time
        response = named_server.request(method, path, json=body, headers={**headers, "Host": host})
        if answered:
            assert response.status_code == 200, response.text
        elif host:
            assert error_of(response, 403)[0] in ("host", "origin")
        else:
            assert response.status_code in (400, 403)
    assert named_server.state.metrics.reloads.labels("done")._value.get() == before  # type: ignore[attr-defined]
    assert named_server.get("/healthz", headers={**headers, "Host": host or "probe"}).status_code == 200


@pytest.mark.parametrize("host", ["", "user@localhost", "evil.example"])
def test_refused_host_is_told_in_a_sentence_that_makes_sense(host: str, named_server: httpx.Client) -> None:
    response = named_server.get("/v1/model", headers={"Host": host})
    message = f"The Host {host} is not allowed" if host == "evil.example" else "The request has no valid Host header"
    assert error_of(response, 403)[1].startswith(message)


def test_any_site_may_link_to_the_page(named_server: httpx.Client) -> None:
    from_elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert named_server.get("/", headers=from_elsewhere).status_code == 200
    assert named_server.get("/", headers={**from_elsewhere, "Sec-Fetch-Mode": "no-cors"}).status_code == 403


def test_with_a_token_the_server_may_have_any_name(run_folder: Path) -> None:  # noqa: F811
    """As in a container, which does not know how it is called."""
    with serving(run_folder, token="s3cret", host="0.0.0.0") as client:
        assert client.get("/v1/model", headers={"Host": "fnftg.internal"}).status_code == 200
        own_page = {"Host": "fnftg.internal", "Origin": "https://fnftg.internal"}
        assert client.post("/v1/predict", json=query(), headers=own_page).status_code == 200
        other_page = {"Host": "fnftg.internal", "Origin": "https://evil.example"}
        assert error_of(client.post("/v1/predict", json=query(), headers=other_page), 403)[0] == "origin"
    with serving(run_folder, host="0.0.0.0") as client:
        assert client.get("/v1/model", headers={"Host": "203.0.113.7:80"}).status_code == 200, "an address of its own"
        assert client.get("/v1/model", headers={"Host": "evil.example"}).status_code == 403


def test_cookie_is_secure_behind_https(run_folder: Path) -> None:  # noqa: F811
    for https in (False, True):
        with serving(run_folder, token="s3cret", behind_https=https) as client:
            cookie = client.get("/?token=s3cret").headers["set-cookie"]
            assert ("Secure" in cookie) is https and "HttpOnly" in cookie and "SameSite=strict" in cookie


def test_every_response_has_strict_security_headers(server: httpx.Client) -> None:  # noqa: F811
    for path, headers in (
        ("/", {}),
        ("/page/page.js", {}),
        ("/v1/model", {}),
        ("/nowhere", {}),
        ("/", {"Host": "evil"}),
    ):
        found = server.get(path, headers=headers).headers
        policy = found["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "*" not in policy
        assert "frame-ancestors 'none'" in policy and found["x-frame-options"] == "DENY"
        assert found["x-content-type-options"] == "nosniff" and found["referrer-policy"] == "no-referrer"
