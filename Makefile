# make demo   from nothing to a profile, a report and a selection
# make check  what is quick to check, for daily work
# make test   everything that is tested
# make install   the program, its manual pages and completions, below PREFIX
# make dist   packages for other machines, in target/dist
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# The first toolchain that works: a user's rustup without its home does not, and then the system's serves.
CARGO := $(shell for c in cargo /usr/bin/cargo; do \
	v=$$($$c --version 2>/dev/null | cut -d. -f2 || true); \
	if [ "$${v:-0}" -ge 88 ]; then echo $$c; break; fi; done)
# With all that belongs to it.
export PATH := $(if $(filter /usr/bin/cargo,$(CARGO)),/usr/bin:)$(PATH)
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/target/release:$(PATH)
export CARGO
export FULLPIPE := $(CURDIR)/target/release/fullpipe

PREFIX ?= /usr/local

.PHONY: demo check test build install dist dist-test kernel validate fuzz bench profile profile-udt papers sobas docs docs-test docs/session.svg lint clean setup setup-test setup-lint binary python python-test

setup:
	@scripts/setup
setup-test:
	@scripts/setup test
setup-lint:
	@scripts/setup lint

# A recursive make sees the toolchain that setup has just installed.
build: setup
	@$(MAKE) --no-print-directory binary python

binary:
	@$(CARGO) build --release --locked

.venv/bin/python3:
	@/usr/bin/python3 -m venv .venv 2>/dev/null || python3 -m venv .venv

python: .venv/.runtime
.venv/.runtime: .venv/bin/python3 python/pyproject.toml
	@echo "installing the Python part into .venv" >&2
	@.venv/bin/python3 -m pip install --quiet --disable-pip-version-check --editable python
	@touch $@

python-test: .venv/.test
.venv/.test: .venv/.runtime
	@.venv/bin/python3 -m pip install --quiet --disable-pip-version-check --editable 'python[test]'
	@touch $@

kernel: build
	@$(FULLPIPE) lab kernel >/dev/null

# What has been built goes below PREFIX; DESTDIR stands before it, for packages. Builds nothing, so that root need not.
install:
	@[ -x $(FULLPIPE) ] || { echo "nothing has been built here: run 'make build' first" >&2; exit 3; }
	install -D -m 755 $(FULLPIPE) $(DESTDIR)$(PREFIX)/bin/fullpipe
	$(FULLPIPE) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(FULLPIPE) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/fullpipe
	$(FULLPIPE) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_fullpipe
	$(FULLPIPE) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fullpipe.fish

# Tarball, .deb, .rpm and Python wheel, for Linux 4.18 and glibc 2.17, or later.
dist: build
	@scripts/dist

# Installs them, as root also in new Debian systems.
dist-test:
	@scripts/dist-test

demo: setup
	@scripts/demo

# Quick: under a minute once it has run. No testbed, no release build.
check: .venv/.test
	@scripts/check

test: setup-test build
	@$(MAKE) --no-print-directory python-test
	@scripts/test

lint: setup-lint build
	@$(MAKE) --no-print-directory python-test
	@scripts/lint

# The whole validation of the testbed; rewrites its table in docs/explanation/testbed-validation.md.
validate: setup-test kernel
	@$(MAKE) --no-print-directory python-test
	@.venv/bin/python3 -m lab.validate --write docs/explanation/testbed-validation.md

# Anything may arrive from the network: a minute for each parser and each end.
fuzz: setup-test
	@scripts/fuzz

bench: kernel
	@$(MAKE) --no-print-directory python-test
	@bench/run

# Measures anew what the program ships as its profile: about an hour and a half on two cores.
profile: kernel
	@$(FULLPIPE) campaign run campaigns/shipped.toml --out runs/shipped
	@cp runs/shipped/profile.json crates/fullpipe/shipped.json

# Measures UDT for that profile, and adds it: about half an hour on one core. Build what is committed before: the profile says the
# commit.
profile-udt: kernel
	@$(FULLPIPE) campaign run campaigns/shipped-udt.toml --out runs/shipped-udt
	@.venv/bin/python3 scripts/add-to-profile crates/fullpipe/shipped.json runs/shipped-udt

# The papers' findings beside ours: about 20 hours on two cores, in parts that go on where they stopped. Build what is committed
# before: the page says the commit.
PAPERS = buffers starts starts-ten sizes loss profiles udt traces coverage
papers: kernel
	@for name in $(PAPERS); do \
		$(FULLPIPE) campaign run campaigns/papers-$$name.toml --out runs/papers-$$name; done
	@.venv/bin/python3 -m lab.papers pack --build $$(git rev-parse --short HEAD) $(PAPERS:%=runs/papers-%)
	@.venv/bin/python3 -m lab.papers fit
	@.venv/bin/python3 -m lab.papers judge
	@.venv/bin/python3 -m lab.papers draw

# Buffers that size themselves, side by side with others: the table in docs/explanation/sobas-results.md.
sobas: kernel
	@$(MAKE) --no-print-directory python-test
	@.venv/bin/python3 -m lab.sobas --write docs/explanation/sobas-results.md
	@.venv/bin/python3 -m lab.sobas.clean

.venv/.docs: .venv/.runtime
	@.venv/bin/python3 -m pip install --quiet --disable-pip-version-check --editable 'python[docs]'
	@touch $@

# The documentation as a site, target/docs/index.html; a broken link or reference is an error.
docs: build
	@$(MAKE) --no-print-directory .venv/.docs
	@scripts/docs-commands
	@.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going -j auto docs target/docs
	@echo "target/docs/index.html" >&2

# Runs the commands in the documentation, and checks that the commands' page is what the program says.
docs-test: kernel
	@scripts/docs-commands --check
	@scripts/docs-test

# The terminal session that README.md shows. What it shows depends on the program, so it is always recorded anew.
docs/session.svg: kernel
	@.venv/bin/python3 scripts/record-session $@

clean:
	rm -rf target .venv demo runs
