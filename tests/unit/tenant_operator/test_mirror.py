"""A mirror where a namespace lets it not look."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from libs.errors import AccessDenied
from services.tenant_operator.kubernetes_client import KubernetesClient, Listed
from services.tenant_operator.mirror import Mirror

ACME = {"metadata": {"uid": "1", "name": "acme", "resourceVersion": "1"}}
REFUSED = AccessDenied("configmaps is forbidden")


class Ended(Exception):
    """The answers of the API server that a test has are used up."""


class ApiServer:
    """Answers lists in turn, and each watch by ``watch``."""

    def __init__(self, *lists: list[dict[str, Any]] | AccessDenied, watch: AccessDenied | None = REFUSED) -> None:
        self._lists: Iterator[list[dict[str, Any]] | AccessDenied] = iter(lists)
        self._watch = watch

    async def list(self, path: str, *, labels: str, fields: str) -> Listed:
        answer = next(self._lists, None)
        if answer is None:
            raise Ended
        if isinstance(answer, AccessDenied):
            raise answer
        return Listed(tuple(answer), "1")

    async def watch(self, path: str, **asked: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        if self._watch is not None:
            raise self._watch
        yield "MODIFIED", ACME
        self._watch = REFUSED


class Followed:
    """A mirror that followed an API server to the end of its answers."""

    def __init__(self, api: ApiServer, *, namespace: str | None = "team") -> None:
        self.pauses_s: list[float] = []
        self.stood: list[tuple[str | None, list[str]]] = []
        """Fault and objects at each pause."""
        self.changes = 0
        self.mirror = Mirror(
            cast(KubernetesClient, api), "/maps", namespace=namespace, on_change=self._changed, pause=self._pause
        )
        with pytest.raises(Ended):
            asyncio.run(self.mirror.run())

    def _changed(self) -> None:
        self.changes += 1

    async def _pause(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.stood.append((self.mirror.fault, [each["metadata"]["name"] for each in self.mirror.objects]))


def test_a_namespace_that_refuses_is_asked_again_at_growing_pauses() -> None:
    followed = Followed(ApiServer(*[REFUSED] * 7))

    assert followed.pauses_s == [1, 2, 4, 8, 16, 30, 30]
    assert followed.mirror.answered.is_set()
    assert not followed.mirror.is_listed.is_set()
    assert followed.changes == 1  # it is reported once, and not at each attempt


def test_its_fault_names_it_and_what_to_do() -> None:
    [(fault, _)] = Followed(ApiServer(REFUSED)).stood

    assert fault is not None
    assert "namespace team refuses the operator: configmaps is forbidden" in fault
    assert "RoleBinding headwater-tenants" in fault


def test_what_was_known_stays_while_it_refuses() -> None:
    """As one that is deleted does, whose rights go before its ConfigMaps."""
    followed = Followed(ApiServer([ACME], REFUSED))

    assert [objects for _, objects in followed.stood] == [["acme"], ["acme"]]


def test_one_that_answers_again_is_followed() -> None:
    followed = Followed(ApiServer(REFUSED, REFUSED, [ACME], [], watch=None))

    assert followed.mirror.is_listed.is_set()
    assert followed.pauses_s[:2] == [1, 2]
    assert followed.pauses_s[2] == 1  # after a watch that stood it is a new refusal


def test_one_that_may_be_listed_and_not_watched_is_not_listed_without_a_pause() -> None:
    assert Followed(ApiServer([ACME], [ACME], [ACME])).pauses_s == [1, 2, 4]


async def test_a_refusal_of_our_own_namespace_ends_it() -> None:
    mirror = Mirror(cast(KubernetesClient, ApiServer(REFUSED)), "/maps", on_change=lambda: None)

    with pytest.raises(AccessDenied):
        await mirror.run()
