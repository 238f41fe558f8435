from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import os
import random
import re
import string
import sys
import uuid
from importlib import import_module
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.cpu_seconds import at_most

from pytest_agentbench.secrets.redaction import REDACTED, Redactor, _record_words

SECRET = "hunter2-hunter2"
redactor = Redactor({"SERVICE_API_KEY": SECRET})


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "db_password", "GH_TOKEN", "Client-Secret", "AWS_CREDENTIALS", "SMTP_PASS", "NPM_AUTH"),
        *(
            "SESSION_JWT",
            "AOC_SESSION",
            "SESSION_ID",
            "ERLANG_COOKIE",
            "COOKIES",
            "HASH_SALT",
            "CARD_PIN",
            "PIN",
            "OTP",
        ),
        *("LDAP_BIND", "LDAP_BIND_PW", "LDAP_BINDPW", "SSH_PASSPHRASE", "VNC_PASSCODE", "WIFI_PSK", "DB_PW", "BEARER"),
        *("MYSQL_PWD", "GITHUB_PAT", "SLACK_WEBHOOK_URL", "SENTRY_DSN", "DB_CONNECTION_STRING", "pass_phrase"),
    ],
)
def test_values_of_variables_that_look_like_keys_are_removed(name):
    assert Redactor({name: SECRET}).text(f"curl -u me:{SECRET}@host") == f"curl -u me:{REDACTED}@host"


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "LANG", "GIT_AUTHOR_NAME", "PASSENGER_COUNT", "PATTERN", "PWD_HELPER", "OLDPWD", "PINYIN", "SPIN"),
        *(
            "SESSION_MANAGER",
            "SHELL_SESSION_ID",
            "TERM_SESSION_ID",
            "XDG_SESSION_ID",
            "DESKTOP_SESSION",
            "COOKIE_DOMAIN",
        ),
        *("XDG_SESSION_DESKTOP", "SALT_MASTER", "OTP_VERSION", "JWT_ISSUER", "LDAP_BIND_DN", "BASALT", "PINNED"),
    ],
)
def test_other_variables_stay(name):
    assert Redactor({name: SECRET}).text(SECRET) == SECRET


def test_short_values_paths_and_words_of_the_records_stay(tmp_path):
    environ = {"A_KEY": "true", "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path), "AUTH_ROLE": "assistant"}
    text = f"true {tmp_path} assistant"
    assert Redactor(environ).text(text) == text


def test_the_longer_of_two_secrets_goes_whole():
    both = Redactor({"A_KEY": "abcdefgh", "B_KEY": "abcdefgh-and-more"})
    assert both.text("abcdefgh-and-more abcdefgh") == f"{REDACTED} {REDACTED}"


KEYS = [
    "sk-proj-" + "a1B2" * 10,
    "sk-ant-api03-" + "x" * 30,
    "sk_live_" + "0" * 24,
    "ghp_" + "a" * 36,
    "github_pat_" + "a" * 60,
    "glpat-" + "a" * 20,
    "hf_" + "a" * 34,
    "xoxb-" + "1" * 24,
    "AKIA" + "A" * 16,
    "AIza" + "b" * 35,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow" + "A" * 80 + "\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n" + "B" * 64,
]


def test_well_known_forms_are_removed_wherever_they_stand():
    for key in KEYS:
        for before in ["", " ", "\n", "\x1b", '"', "=", "Authorization: Bearer "]:
            for document in (
                {"content": before + key},
                {"raw": json.dumps({"content": before + key})},
                {key: 1},
                [[key]],
            ):
                found = redactor.json(json.dumps(document))
                json.loads(found)
                assert key[10:] not in json.dumps(json.loads(found)), (key, before)
                assert key.splitlines()[-1] not in found, (key, before)


def random_text(length: int, characters: str = string.ascii_letters + 3 * string.digits) -> str:
    chosen = random.Random(f"{length} {characters}")
    return "".join(chosen.choices(characters, k=length))


HEX = string.digits + "abcdef"
MORE_KEYS = [
    "sk-or-v1-" + random_text(64, HEX),
    "gsk_" + random_text(52),
    "xai-" + random_text(80),
    "pplx-" + random_text(48),
    "nvapi-" + random_text(64),
    "tvly-dev-" + random_text(32),
    "r8_" + random_text(37),
    "ya29." + random_text(60),
    "lsv2_pt_" + random_text(32, HEX) + "_" + random_text(10, HEX),
    "npm_" + random_text(36),
    "pypi-AgEIcHlwaS5vcmc" + random_text(100),
    "dckr_pat_" + random_text(27),
    "dop_v1_" + random_text(64, HEX),
    "dapi" + random_text(32, HEX),
    "shpat_" + random_text(32, HEX),
    "xoxe.xoxp-1-" + random_text(60),
    "xapp-1-A0" + random_text(9) + "-" + random_text(13, string.digits) + "-" + random_text(64, HEX),
    "SG." + random_text(22) + "." + random_text(43),
    "hvs." + random_text(24),
    "AGE-SECRET-KEY-1" + random_text(58, string.ascii_uppercase + string.digits),
    base64.b64encode(b"-----BEGIN RSA PRIVATE KEY-----\n" + 80 * b"A").decode(),
    base64.b64encode(b"-----BEGIN PRIVATE KEY-----\n" + 80 * b"A").decode(),
    # known to detect-secrets alone
    "https://hooks.slack.com/services/T024BE7LD/B08AB1CD2/" + random_text(24),
    "1234567890:AA" + random_text(33),
    "AccountKey=" + random_text(86) + "==",
]


@pytest.mark.parametrize("key", MORE_KEYS, ids=lambda key: key[:12])
def test_keys_of_many_providers_go_whole_wherever_they_stand(key):
    for before in ("", " ", "\n", "\x1b", "export KEY=", "https://example.org/?key="):
        found = json.loads(redactor.json(json.dumps({"content": f"{before}{key} and more"})))["content"]
        assert found.rstrip("= adnmore") == f"{before}{REDACTED}"
    assert redactor.text(f"{key} {key}\n{key}").split() == [REDACTED] * 3 or key.endswith("==")


@pytest.mark.parametrize(
    "block",
    [
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: x\nAAAAlQOYBF\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 1\nAAAAC3\n"
        "Private-Lines: 1\nlQOYBF\nPrivate-MAC: 01ab",
    ],
)
def test_private_keys_of_other_programs_go(block):
    for text in (block, json.dumps(block), json.dumps(json.dumps(block))):
        assert "lQOYBF" not in redactor.text(f"before {text} after")
        assert redactor.text(f"before {text} after").endswith("after")


@pytest.mark.parametrize(
    "url",
    [
        *("postgres://[app:Tr0ub4dor&3]@db/x", "redis://[:hunter]@host", "amqp://[app:hunter]@mq:5672/%2f"),
        *("https://[a1b2c3d4e5f6a7b8]@sentry.example/7", "https://[hunterhunterhunterhunter]@git.example/a.git"),
        *("redis://[:p@ss]@host", "redis://[:hunt%40er]@host", "mongodb+srv://[app:12345]@db"),
    ],
)
def test_passwords_in_urls_are_removed(url):
    hidden = re.sub(r"\[.*\]", REDACTED, url)
    written = url.replace("[", "").replace("]", "")
    for shown in ("see {} there", '"{}"', "({})"):
        assert redactor.text(shown.format(written)) == shown.format(hidden)
    assert "hunt" not in redactor.text(f"?next={quote(written, safe='')}&a=b")


@pytest.mark.parametrize(
    "url",
    [
        *("https://user:password@example.com", "http://localhost:8080/@scope", "git@github.com:a/b.git"),
        *("ssh://git@github.com/a/b", "https://john.smith1985@host/", "https://example.org:8080?mail=a@b.org"),
        *("postgres://user:$DB_PASSWORD@db", "postgres://u:${PW}@db", "redis://:<secret>@host", "a://u:****@h"),
        *("postgres://postgres:postgres@localhost/x", "http://localhost:80, me@example.org", "https://x.org/a?b=c@d"),
        *("docker://python-3.11-slim-bookworm@sha256:12ab", "https://medium.com/@someone/12345678"),
    ],
)
def test_examples_of_urls_stay(url):
    assert redactor.text(f"see {url} there") == f"see {url} there"


def test_the_projects_own_pages_and_code_stay_as_they_are():
    root = Path(__file__).parents[2]
    paths = [*root.glob("docs/*.md"), *root.glob("pytest_agentbench/**/*.py"), root / "README.md"]
    assert len(paths) > 200
    assert [path for path in paths if redactor.text(text := path.read_text()) is not text] == []


HOSTILE = [
    *(
        "-eyJ",
        ".eyJaaaaaaaaaa",
        "sk-",
        "-glpat-",
        "-glagent-a1",
        "-AIza",
        "-M1",
        "-1234567890:",
        "-xoxb-1-",
        "-tskey-a-",
    ),
    *("https://hooks.slack.com/services/Ta1/B", "AccountKey=a1", "aws key 'a1", "Bearer a.", "Basic a", "a1-", "a"),
    *("://a:1", "-----BEGIN PRIVATE KEY-----", "PuTTY-User-Key-File-3: Private-Lines: ", "deadbeef"),
    *("\\", "%41", "%25", "&amp;", "&#38;", "\\u005c", "://:a@", "a" * 45 + "\n", "a" * 45 + "\\n"),
]


@pytest.mark.slow
def test_a_hostile_text_takes_time_in_proportion_to_its_length():
    for part in HOSTILE:
        text = part * (1_000_000 // len(part))
        with at_most(20, part):  # squared, it would be hours
            redactor.text(text)


def count_calls(text: str) -> int:
    """Return how many functions redaction calls, including Python's own."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        redactor.text(text)
    finally:
        sys.setprofile(None)
    return calls


@settings(max_examples=40)
@given(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3).map("".join))
def test_a_hostile_text_of_twice_the_length_takes_twice_the_calls(part):
    redactor.text(part * 20)  # what is compiled once
    calls = [count_calls(part * (characters // len(part))) for characters in (2_000, 4_000, 8_000)]
    assert calls[2] - calls[1] <= 2.2 * (calls[1] - calls[0]) + 100


@pytest.mark.parametrize(
    "text",
    [
        "pina_bausch_and_the_tanztheater_of_wuppertal",
        "lip_synchronization_of_dubbed_films",
        "task-management-improvements-for-the-next-quarter",
        "the risk-adjusted-returns-of-the-portfolio-manager",
        "sk-learn-estimators-and-their-pipelines",
        "an internet bearer authentication/authorization overview",
        "Basic internationalization",
        "eyJ is how JSON begins in base64",
        "APFELKUCHENREZEPT AKCELERATOR2024",
        "AC" + hashlib.md5(b"1").hexdigest(),
        "MultiHeadAttentionEncoder.config.default_attention_parameters",
        "1234567890:the-quick-brown-fox-jumps-over-the-lazy-dog",
        "arn:aws:iam::123456789012:role/service-role/MyExecutionRole1",
        "https://example.org/watch?v=dQw4w9WgXcQ&list=PLrAXtmErZgOeiKm4sgNOknGvNjby9efdf#t=1m30s",
        "https://user:password@example.org/",
        "postgresql://user:password@localhost:5432/db",
        "registry.example.org:5000/team/image@sha256:" + hashlib.sha256(b"1").hexdigest(),
        *(hashlib.new(name, b"text").hexdigest() for name in ("md5", "sha1", "sha256", "sha512")),
        "sha512-" + base64.b64encode(hashlib.sha512(b"1").digest()).decode(),
        str(uuid.UUID(int=2**127 + 12345)),
        "2026-11-21T10:11:12.123456+00:00",
        "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(100_000)).decode(),
        base64.b64encode(b"-----BEGIN CERTIFICATE-----\n" + 80 * b"A").decode(),
        "a bearer of good news",
        "sk-short",
    ],
    ids=lambda text: text[:20],
)
def test_ordinary_text_stays(text):
    assert redactor.text(text) is text


def test_text_about_keys_goes_on_after_the_mark():
    text = "It begins with -----BEGIN PRIVATE KEY----- and then goes on for pages."
    assert redactor.text(text) == f"It begins with {REDACTED} and then goes on for pages."


def test_a_value_is_cleaned_through_and_through():
    value = {"a": [SECRET, {"b": f"x{SECRET}y"}], SECRET: 1, "n": 1.5, "none": None}
    assert redactor.value(value) == {"a": [REDACTED, {"b": f"x{REDACTED}y"}], REDACTED: 1, "n": 1.5, "none": None}


def _counts_as_secret(text: str) -> bool:
    """Return whether a text is no existing path and no plain word of records."""
    text = text.strip()
    # The words depend on the packs that this process has imported, and some have blanks
    is_word = text in _record_words() or re.fullmatch("[a-z0-9_]+", text)
    return len(text) >= 8 and not os.path.exists(text) and not is_word


awkward = st.text(st.characters(codec="utf-8"), min_size=8, max_size=30).filter(_counts_as_secret)


@given(secret=awkward, before=st.text(max_size=5), after=st.text(max_size=5))
def test_no_secret_survives_in_json_and_the_json_stays_json(secret, before, after):
    cleaned = Redactor({"MY_KEY": secret})
    for ascii_only in (True, False):
        document = json.dumps({"text": before + secret + after, "size": 12345678}, ensure_ascii=ascii_only)
        found = json.loads(cleaned.json(document))
        assert found["size"] == 12345678
        assert secret.strip() not in found["text"]


def test_no_secret_survives_in_json_inside_json():
    secret, redactor = 'se"crét-0123456789', Redactor({"MY_PASSWORD": 'se"crét-0123456789'})
    for outer, inner in itertools.product((True, False), repeat=2):
        document = json.dumps({"arguments": json.dumps({"path": secret}, ensure_ascii=inner)}, ensure_ascii=outer)
        assert json.loads(redactor.json(document)) == {"arguments": f'{{"path": "{REDACTED}"}}'}


def mixed(text: str) -> str:
    """Return the text with every other letter in capitals."""
    return "".join(letter.upper() if at % 2 else letter for at, letter in enumerate(text))


def percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def wrapped(content: bytes) -> str:
    """Return base64 as programs print it that wrap lines."""
    return base64.encodebytes(b"0123456789" * 9 + content + b"0123456789").decode()


ESCAPES = {
    "percent": percent,
    "percent, lower case": lambda text: percent(text).lower(),
    "percent, partly": lambda text: "".join(percent(each) if at % 3 else quote(each) for at, each in enumerate(text)),
    "percent, twice": lambda text: percent(percent(text)),
    "JSON": lambda text: json.dumps("".join(f"\\u{ord(each):04x}" for each in text if each < "\U00010000"))[1:-1],
    "JSON, partly": lambda text: json.dumps(text)[1:-1].replace("/", "\\/").replace("a", "\\u0061"),
    "HTML, decimal": lambda text: "".join(f"&#{ord(each):05d};" for each in text),
    "HTML, hex": lambda text: "".join(f"&#x{ord(each):X};" for each in text),
    "HTML, names": html.escape,
    "HTML in a URL": lambda text: quote(html.escape(text).replace("a", "&#97;"), safe=""),
    "hex": lambda text: text.encode().hex(),
    "hex, capitals": lambda text: text.encode().hex().upper(),
    "hex, mixed": lambda text: mixed(text.encode().hex()),
    "base64 in JSON": lambda text: base64.b64encode(text.encode()).decode().replace("/", "\\/"),
    "base64 in a URL": lambda text: quote(base64.b64encode(text.encode()), safe=""),
    "base64, wrapped": lambda text: wrapped(text.encode()),
    "base64, wrapped, in JSON": lambda text: json.dumps(wrapped(text.encode()))[1:-1],
}
keys = st.text(string.ascii_letters + string.digits + "+/=_-. &<\"'é%", min_size=8, max_size=50).filter(
    lambda text: _counts_as_secret(text) and unquote(text) == text  # else there is more than one way to undo it
)


def survives(form: str, shown: str) -> bool:
    """Return whether six characters of the form are left, of which the mark has none."""
    form = re.sub("(%3D|=)+$", "", form)  # says nothing
    return any(form[at : at + 6] in shown for at in range(len(form) - 5) if form[at : at + 6] not in REDACTED)


def check_encoding(name: str, secret: str) -> None:
    redactor, form = Redactor({"MY_KEY": secret}), ESCAPES[name](secret)
    shown = redactor.text(f"[ {form} ]")
    if name.startswith("base64, wrapped"):
        left = shown[2:-2].replace(REDACTED, "AAAA").replace("\\n", "\n")
        assert secret.encode() not in base64.b64decode(left + "==="), name
        return
    assert not survives(form, shown), (name, form, shown)
    document = redactor.json(json.dumps({"a": {form: [form]}}))
    assert json.loads(document) == redactor.value({"a": {form: [form]}}), name
    assert not survives(json.dumps(form)[1:-1], document), name


@pytest.mark.slow
@given(keys)
def test_nothing_of_a_key_survives_its_encodings(secret):
    for name in ESCAPES:
        check_encoding(name, secret.strip())


@pytest.mark.parametrize("name", ESCAPES)
def test_a_key_goes_in_each_encoding(name):
    check_encoding(name, "a/b <c> 'd'&e+0123, over the end of a line")


@given(keys, st.binary(max_size=5), st.binary(max_size=5), st.booleans())
def test_nothing_of_a_key_survives_base64_wherever_it_begins(secret, before, after, websafe):
    secret = secret.strip()
    content = before + secret.encode() + after
    digits = (base64.urlsafe_b64encode if websafe else base64.b64encode)(content).decode()
    first, last = -(-8 * len(before) // 6), 8 * (len(before) + len(secret.encode())) // 6
    for form in (digits, digits.rstrip("=")):
        shown = Redactor({"MY_KEY": secret}).text(f"Basic: {form}.")
        assert shown == f"Basic: {form[:first]}{REDACTED}{form[last:]}."


PEM = "\n".join(
    ["-----BEGIN EC PRIVATE KEY-----", random_text(64), random_text(64, HEX), "-----END EC PRIVATE KEY-----"]
)


@pytest.mark.parametrize("value", [PEM, PEM.replace("\n", "\\n"), json.dumps({"type": "service", "private_key": PEM})])
def test_each_line_of_a_key_of_several_is_hidden(value):
    redactor = Redactor({"DEPLOY_KEY": value})
    for line in PEM.splitlines()[1:3]:
        for shown in (f"grep found: {line}", line.encode().hex(), base64.b64encode(line.encode()).decode()):
            assert REDACTED in redactor.text(shown)
            assert not survives(shown[12:] if " " in shown else shown, redactor.text(shown))
    ordinary = "the type of a service is EC, private_key, and -----END of it"
    assert redactor.text(ordinary) is ordinary


def test_words_of_a_secret_stay():
    redactor = Redactor(
        {"MY_PASSPHRASE": "correct horse battery staple", "AUTH_PAGE": "see https://docs.example.org/a1b2c3d4"}
    )
    for text in ("the horse is correct, the battery flat", "https://docs.example.org/a1b2c3d4"):
        assert redactor.text(text) is text


def test_a_secret_in_a_url_goes_as_it_is_written_there():
    redactor = Redactor({"MY_PASSWORD": "a/b c&d+0123"})
    for shown in ("https://x.org/?key=a%2Fb%20c%26d%2B0123", "https://x.org/?key=a%2Fb+c%26d%2B0123"):
        assert redactor.text(f"GET {shown} failed") == f"GET https://x.org/?key={REDACTED} failed"
        assert json.loads(redactor.json(json.dumps([shown]))) == [f"https://x.org/?key={REDACTED}"]


def test_a_secret_that_is_no_unicode_goes():
    assert Redactor({"MY_KEY": "0123456\udcff"}).text("it is 0123456\udcff.") == f"it is {REDACTED}."


def test_a_secret_of_digits_leaves_numbers_alone():
    assert json.loads(Redactor({"PIN_TOKEN": "12345678"}).json('{"n":12345678,"t":"12345678"}')) == {
        "n": 12345678,
        "t": REDACTED,
    }


# Of its others, some go by the words around a secret (keyword, npm, cloudant, ibm_*, softlayer), some take usual text
# for one (artifactory: words in capitals; basic_auth: every example with a password; twilio: ids that are no secrets),
# private_key knows only the first line, jwt leaves the signature, openai takes time squared.
PLUGINS = (
    "aws azure_storage_key discord github_token gitlab_token mailchimp pypi_token sendgrid slack square_oauth stripe "
    "telegram_token"
)


def forms_of(plugin: str) -> list[re.Pattern[str]]:
    kinds = vars(import_module(f"detect_secrets.plugins.{plugin}")).values()
    lists = [kind.denylist for kind in kinds if isinstance(getattr(kind, "denylist", None), list | tuple)]
    return [form for denylist in lists for form in denylist]


@pytest.mark.parametrize("plugin", PLUGINS.split())
@settings(max_examples=15)
@given(data=st.data())
def test_keys_that_detect_secrets_knows_go(plugin, data):
    form = data.draw(st.sampled_from([form for form in forms_of(plugin) if "{40}" not in form.pattern]))
    key = data.draw(st.from_regex(form, fullmatch=True, alphabet=st.characters(max_codepoint=126)))
    assume(re.search("[A-Za-z][0-9]|[0-9][A-Za-z]", key))
    if plugin == "slack":  # as Slack writes them
        key = re.sub("^(xox.|.*/services)", lambda begin: begin[0].lower(), key, flags=re.IGNORECASE)
    assert key[-16:] not in redactor.text(f"the key is {key} here")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Basic", "basic"])
def test_credentials_in_headers_go(scheme):
    credentials = base64.b64encode(b"somebody:with-a-password").decode()
    assert redactor.text(f"Authorization: {scheme} {credentials}") == f"Authorization: {REDACTED}"


def test_the_shortest_of_secrets_goes():
    assert redactor.text("://:h1@") == f"://{REDACTED}@"
    for text in ("", "://", "://a@b", "sk-", "xoxb-1-"):
        assert redactor.text(text) is text


@pytest.mark.parametrize("key", ["xoxa-0-0A", "xoxb-1-a2", "sq0csp-" + "a1b2c3d4e5\\" * 3 + "a1b2c3d4e5"])
def test_keys_that_are_short_or_hold_other_characters_go(key):
    assert redactor.text(f"the key is {key} here") == f"the key is {REDACTED} here"


@pytest.mark.parametrize(
    "name", ["aws_secret_access_key = '{}'", 'AWS_TOKEN="{}"', "awsKey={} ", '{{"aws.password": "{}"}}']
)
def test_secret_keys_of_aws_go_behind_a_name(name):
    key = random_text(40)
    assert redactor.text(name.format(key)) == name.format(REDACTED)
    assert redactor.text(f"the digest '{key}'") == f"the digest '{key}'"


def test_secret_keys_of_aws_go_behind_the_name_of_a_value():
    key = random_text(40)
    value = {"aws_secret_access_key": key, "AWS_TOKEN": [key], "digest": key, "aws key": key + "a", "aws_pwd": 12}
    shown = {**value, "aws_secret_access_key": REDACTED}
    assert redactor.value(value) == shown
    assert json.loads(redactor.json(json.dumps(value))) == shown
