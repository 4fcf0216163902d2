"""A tenant between two Spark jobs: each job's steps, and that no order of kills and news has it served from old state."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from libs.types.sink_place import Handover, HeldState, Outcome, Phase, Place
from services.tenant_operator.moves import NEVER_MOVED, Placement, answered, moved, places_of
from spark.sinks.places import local_folders
from spark.tenant.moves import Step, next_step

T = "uid-1"


def place(job: str, move: int = 0, came_from: str = "", *, tenancy: str = T, drops_tables: bool = False) -> Place:
    return Place(job=job, tenancy=tenancy, move=move, came_from=came_from, drops_tables=drops_tables)


def held(move: int, phase: Phase = Phase.HELD, *, tenancy: str = T) -> HeldState:
    return HeldState(tenancy=tenancy, move=move, phase=phase)


def told(move: int, outcome: Outcome, *, job: str = "a", tenancy: str = T) -> Handover:
    return Handover(tenant="acme", tenancy=tenancy, move=move, outcome=outcome, job=job)


@pytest.mark.parametrize(
    ("where", "has", "said", "step"),
    [
        # It never moved.
        (place("a"), None, None, Step.BEGIN),
        (place("a"), held(0), None, Step.SERVE),
        (place("a"), held(3, Phase.GONE, tenancy="before"), None, Step.BEGIN),
        (place("a"), held(1, Phase.GONE), None, Step.WAIT),  # an older file
        (place("b", 1, "c"), held(0), None, Step.NOTHING),
        # It is to come.
        (place("a", 1, "b"), None, None, Step.WAIT),
        (place("a", 1, "b"), None, told(1, Outcome.HANDED_OVER), Step.TAKE),
        (place("a", 1, "b"), None, told(1, Outcome.HANDED_OVER, tenancy="before"), Step.WAIT),
        (place("a", 2, "b"), None, told(1, Outcome.HANDED_OVER), Step.WAIT),
        (place("a", 2, "b"), held(1, Phase.GONE), told(2, Outcome.HANDED_OVER), Step.TAKE),
        (place("a", 2), held(2), told(2, Outcome.HANDED_OVER), Step.TELL_TAKEN),
        (place("a", 2), held(2), told(2, Outcome.TAKEN), Step.SERVE),
        (place("a", 2), held(2), None, Step.SERVE),  # Kafka is away: its state is here all the same
        (place("a", 2), None, told(2, Outcome.TAKEN), Step.LOST),
        (place("a", 1), held(1, Phase.REFUSED), told(1, Outcome.REFUSED), Step.SERVE),
        # It is to go.
        (place("b", 1, "a"), held(0), None, Step.HAND_OVER),
        (place("b", 1, "a"), None, None, Step.HAND_OVER),  # of a release that noted nothing
        (place("b", 1, "a"), held(1, Phase.HANDING_OVER), None, Step.HAND_OVER),
        (place("b", 1, "a"), held(1, Phase.HANDING_OVER), told(1, Outcome.HANDED_OVER), Step.CLEAR),
        (place("b", 1, "a"), held(1, Phase.GONE), told(1, Outcome.TAKEN, job="b"), Step.NOTHING),
        (place("b", 1, "a"), held(1, Phase.REFUSED), None, Step.TELL_REFUSED),
        (place("b", 1, "a"), held(1, Phase.REFUSED), told(1, Outcome.REFUSED), Step.SERVE),
        (place("b", 2, "a"), held(1, Phase.REFUSED), told(1, Outcome.REFUSED), Step.HAND_OVER),
        (place("b", 2, "a"), None, told(1, Outcome.HANDED_OVER), Step.HAND_ON),  # it never came here
        (place("b", 2, "a"), None, told(1, Outcome.TAKEN), Step.LOST),
        # Its tables go.
        (place("a", drops_tables=True), held(0), None, Step.DROP),
        (place("a", drops_tables=True), None, told(0, Outcome.NOT_DROPPED), Step.DROP),
        (place("a", drops_tables=True), held(0, Phase.DROPPED), told(0, Outcome.DROPPED), Step.NOTHING),
        (place("a", drops_tables=True), held(0, Phase.DROPPED), None, Step.TELL_DROPPED),
        (place("a"), held(0, Phase.DROPPED, tenancy="before"), None, Step.BEGIN),
        (place("a", 1, "b", drops_tables=True), None, None, Step.WAIT),  # the other may write still
        (place("a", 1, "b", drops_tables=True), None, told(1, Outcome.HANDED_OVER), Step.DROP),
        (place("b", 1, "a", drops_tables=True), held(0), None, Step.HAND_OVER),
    ],
)
def test_what_a_job_does(where: Place, has: HeldState | None, said: Handover | None, step: Step) -> None:
    assert next_step("a", where, has, said) is step


@dataclass
class Job:
    """The part of a job that outlives a kill."""

    name: str
    held: HeldState | None = None
    state: int = 0
    """Of the tenant, as a number that each batch makes greater; 0: it has not begun."""


@dataclass
class World:
    """The operator's record, two jobs, the topic, and the newest ConfigMap that each job's pod has."""

    chance: random.Random
    job: str = "a"
    placement: Placement = NEVER_MOVED
    topic: tuple[Handover, int] | None = None
    jobs: dict[str, Job] = field(default_factory=lambda: {name: Job(name) for name in "ab"})
    seen: dict[str, Place | None] = field(default_factory=lambda: {"a": None, "b": None})
    written: int = 0
    """By the job that served it last."""

    def act(self) -> None:
        self.chance.choice([self.operator, self.tell, self.run, self.run])()

    def operator(self) -> None:
        self.job, self.placement = answered(self.job, self.placement, T, self.topic[0] if self.topic else None)
        if not self.placement.came_from and self.chance.random() < 0.3:
            self.placement, self.job = moved(self.placement, self.job), "b" if self.job == "a" else "a"

    def tell(self) -> None:
        """Kubernetes hands a job the file as it is now, whenever it likes."""
        name = self.chance.choice("ab")
        self.seen[name] = places_of("acme", T, self.job, self.placement).get(name)

    def run(self) -> None:
        """One step of a job, killed anywhere within."""
        job = self.jobs[self.chance.choice("ab")]
        where = self.seen[job.name]
        if where is None:
            return
        said, state = self.topic if self.topic else (None, 0)
        if self.chance.random() < 0.2:
            said = None  # Kafka is away
        step = next_step(job.name, where, job.held, said)
        if said is None and self.topic is not None and step not in (Step.SERVE, Step.BEGIN):
            return  # ``Moves.look`` does nothing else without having asked
        assert step is not Step.LOST, (job, where, said)
        is_killed = self.chance.random() < 0.3
        match step:
            case Step.SERVE | Step.BEGIN | Step.TELL_TAKEN | Step.TELL_REFUSED:
                if step is Step.BEGIN:
                    job.held, job.state = HeldState(tenancy=T, move=0, phase=Phase.HELD), 0
                assert job.state == self.written, f"{job} goes on from old state: {self.written} is written"
                self.written += 1
                job.state = self.written
                if step is Step.TELL_TAKEN and not is_killed:
                    self.say(job, where, Outcome.TAKEN)
                if step is Step.TELL_REFUSED and not is_killed:
                    self.say(job, where, Outcome.REFUSED)
            case Step.HAND_OVER:
                is_begun = job.held is not None and job.held.phase is Phase.HANDING_OVER
                if not is_begun and self.chance.random() < 0.2:
                    job.held = HeldState(tenancy=T, move=where.move, phase=Phase.REFUSED)
                    if not is_killed:
                        self.say(job, where, Outcome.REFUSED)
                    return
                job.held = HeldState(tenancy=T, move=where.move, phase=Phase.HANDING_OVER)
                if not is_killed:
                    self.say(job, where, Outcome.HANDED_OVER, job.state)
            case Step.HAND_ON:
                self.say(job, where, Outcome.HANDED_OVER, state)
            case Step.CLEAR:
                job.held = HeldState(tenancy=T, move=where.move, phase=Phase.GONE)
                if not is_killed:
                    job.state = 0
            case Step.TAKE:
                job.state = state
                if not is_killed:
                    job.held = HeldState(tenancy=T, move=where.move, phase=Phase.HELD)

    def say(self, job: Job, where: Place, outcome: Outcome, state: int = 0) -> None:
        self.topic = told(where.move, outcome, job=job.name), state


def test_no_order_of_kills_and_news_has_a_tenant_served_from_old_state() -> None:
    """Two jobs that both served it, or one that went on from its state of before, would write a batch upon state that is not
    the newest. And it goes on: after any kills and news, the tenant is served again once every job has the newest.
    """
    for seed in range(200):
        try:
            _serve_at_random(random.Random(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def _serve_at_random(chance: random.Random) -> None:
    world = World(chance)
    world.seen["a"] = places_of("acme", T, "a", NEVER_MOVED)["a"]
    for _ in range(600):
        world.act()
    assert world.placement.move > 3, "nothing was tried"

    before = world.written
    for _ in range(60):
        for name in "ab":
            world.seen[name] = places_of("acme", T, world.job, world.placement).get(name)
            world.run()
        world.job, world.placement = answered(world.job, world.placement, T, world.topic[0] if world.topic else None)
    assert world.written > before


@pytest.mark.parametrize("place", ["/data/lake", "file:///data/lake", "file:/data/lake"])
def test_a_folder_is_one_however_it_is_written(place: str) -> None:
    """A warehouse in it is on the job's own volume, and its tenant is not handed over."""
    assert local_folders({"warehouse_dir": place, "other": "s3://lake/data"}) == {"warehouse_dir": Path("/data/lake")}
