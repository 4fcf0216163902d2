"""All that is shipped is listed with its hashes, and an audit that could not ask says so."""

from pathlib import Path

from libs.setup.audit import UNKNOWN, VULNERABLE, verdict
from libs.setup.bill_of_materials import bill, headwater_bill, jar_components, python_components

ROOT = Path(__file__).parents[3]


def test_every_locked_package_and_jar_is_in_the_bill_with_a_hash() -> None:
    found = headwater_bill()

    purls = {each["purl"] for each in found["components"]}
    assert {"pkg:pypi/msgspec", "pkg:pypi/grpcio", "pkg:pypi/pyspark"} <= {purl.partition("@")[0] for purl in purls}
    assert any(purl.startswith("pkg:maven/org.apache.kafka/") for purl in purls)
    assert "pkg:pypi/pytest" not in {purl.partition("@")[0] for purl in purls}
    assert all(each["hashes"] and each["properties"] for each in found["components"])
    assert found["bomFormat"] == "CycloneDX"
    assert found == headwater_bill()
    lines = [
        line for file in (ROOT / "libs" / "setup" / "locks").glob("*.lock") for line in file.read_text().splitlines()
    ]
    assert len(jar_components(ROOT / "libs" / "setup" / "locks")) == len(
        {line.split()[0] for line in lines if line.strip()}
    )


def test_a_package_of_several_locks_is_listed_once(tmp_path: Path) -> None:
    text = "a-b[x]==1.0 ; python_version < '4' \\\n    --hash=sha256:{}\n    # via c\nc==2 \\\n    --hash=sha256:{}\n"
    for group in ("router", "cli", "dev"):
        (tmp_path / f"{group}.txt").write_text(text.format("a" * 64, "b" * 64))

    first, second = python_components(tmp_path)

    assert (first.purl, first.groups, first.hashes) == ("pkg:pypi/a-b@1.0", {"cli", "router"}, {"a" * 64})
    assert second.purl == "pkg:pypi/c@2"
    assert bill([first], version="1")["serialNumber"] != bill([second], version="1")["serialNumber"]


def test_an_audit_says_what_it_could_not_ask() -> None:
    good = {"name": "a", "version": "1", "vulns": []}
    bad = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
    unknown = {"name": "c", "skip_reason": "Dependency not found on PyPI"}

    assert verdict([good]) == (0, ["1 packages, none with a known vulnerability"])
    assert verdict([good, bad, unknown]) == (VULNERABLE, ["b 2: CVE-1; mended in 3"])
    code, (told,) = verdict([good, unknown])
    assert code == UNKNOWN
    assert "1 of 2 packages were not audited" in told
    assert verdict([])[0] == UNKNOWN
