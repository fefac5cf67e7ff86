# pg_rowsource: each target runs cargo or a script.
#
#   make                builds the library for the PostgreSQL of PG_CONFIG, and the terminal program
#   make install        installs it there (DESTDIR is honoured), and the program, its man page and completions in PREFIX;
#                       PARTS=library or PARTS=program: only that
#   make installcheck   runs the regression tests of sql/ against the running server of PGHOST and PGPORT
#   make demo           sets up, builds, and shows examples on a throwaway server (KEEP=1: it runs until make demo-stop)
#   make test           sets up, builds, and runs the tests on PostgreSQL 15
#   make test-release   counts instructions of the library as it is released (callgrind)
#   make test-matrix    tests what PostgreSQL 16 to 19 do differently, in chroots under target/ (root only);
#                       BRIEF=1: only the newest, and the package of 15
#   make test-platforms compiles for aarch64, and runs installcheck on a PostgreSQL 15 with assertions (root only)
#   make test-all       runs what takes longer, and notes the results in tests/all.md (root only); WHAT="long 16": only these entries
#   make lint           lints all crates
#   make miri           runs the protocol of the sessions' buffers under Miri, if that is installed
#   make docs           builds the book of docs/ as HTML under target/book
#   make package        builds target/packages/postgresql-NN-pg-rowsource_*.deb for the PostgreSQL of PG_CONFIG, and pg-rowsource-cli_*.deb
#   make dist           makes target/pg_rowsource-VERSION.zip for PGXN from the last commit
#   make bench          measures overhead and accuracy on this machine (bench/README.md); WHAT=name: one experiment
#   make bench QUICK=1  does the same in a few minutes, to check that it works
#   make accept         writes what the library declares into the SQL script and the book, and takes what sql/*.sql give now as
#                       expected; read the difference before you commit it
#   make clean          removes all that was built, and stops the throwaway servers
#
# PG_CONFIG chooses the PostgreSQL: make install PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config

# pg_buildext runs this file in another folder. The checkout's path may have spaces, at which make splits: no list and no target of
# make has a path, and in a recipe each stands in quotes.
srcdir := $(shell file=$$(echo '$(MAKEFILE_LIST)' | sed 's/^ *//'); dirname "$$(realpath "$$file")")
PG_CONFIG ?= /usr/lib/postgresql/15/bin/pg_config
CARGO_TARGET_DIR ?= $(srcdir)/target
export PG_CONFIG CARGO_TARGET_DIR
scripts := "$(srcdir)/scripts"

VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" "$(srcdir)/pg_rowsource.control")
MAJOR = $(shell "$(PG_CONFIG)" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
# What scripts/build.sh builds. The profiles for tests and for the demo have libraries of their own.
LIBRARY = $(shell export PG_CONFIG='$(PG_CONFIG)' CARGO_TARGET_DIR='$(CARGO_TARGET_DIR)'; bash -c '. $(scripts)/common.sh && library')
PKGLIBDIR = $(shell "$(PG_CONFIG)" --pkglibdir)
EXTENSIONDIR = $(shell "$(PG_CONFIG)" --sharedir)/extension
BINDIR = $(shell "$(PG_CONFIG)" --bindir)

# These variables are PGXS's. PGXS itself is not included, because its rules would replace the targets below.
REGRESS = $(patsubst %.sql,%,$(shell cd "$(srcdir)/sql" && ls *.sql))
REGRESS_OPTS = --dbname=contrib_regression --load-extension=pg_rowsource
PG_REGRESS = $(shell dirname "$$("$(PG_CONFIG)" --pgxs)")/../test/regress/pg_regress

# Where the terminal program goes, and what is built and installed.
PREFIX ?= /usr/local
PROGRAM = $(CARGO_TARGET_DIR)/lab/rowsource
PARTS ?= library program

.PHONY: all build library program setup install install-library install-program uninstall installcheck demo demo-stop lint test check test-release test-matrix test-platforms test-all miri docs package dist bench accept clean

all: build

build: $(PARTS)

library:
	@$(scripts)/build.sh

program:
	@cd "$(srcdir)" && unset CFLAGS CXXFLAGS CPPFLAGS LDFLAGS SOURCE_DATE_EPOCH && cargo build --locked --ignore-rust-version --profile lab -p rowsource-cli

setup:
	@$(scripts)/setup.sh

install: $(PARTS:%=install-%)

install-library:
	@[ -f "$(LIBRARY)" ] || $(scripts)/build.sh
	@test -n "$(PKGLIBDIR)" || { echo "make install: cannot run $(PG_CONFIG)" >&2; exit 1; }
	install -d "$(DESTDIR)$(PKGLIBDIR)" "$(DESTDIR)$(EXTENSIONDIR)"
	install -m 755 "$(LIBRARY)" "$(DESTDIR)$(PKGLIBDIR)/pg_rowsource.so"
	install -m 644 "$(srcdir)/pg_rowsource.control" "$(srcdir)"/pg_rowsource--*.sql "$(DESTDIR)$(EXTENSIONDIR)/"

# The man page and the completions are what the program says of itself.
share = $(DESTDIR)$(PREFIX)/share
# Debian's zsh looks into one folder of packages, and into another one of what the machine has besides.
zsh = $(share)/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
install-program:
	@[ -f "$(PROGRAM)" ] || $(MAKE) -s --no-print-directory -f "$(srcdir)/Makefile" program
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(share)/man/man1" "$(share)/bash-completion/completions" \
	    "$(zsh)" "$(share)/fish/vendor_completions.d"
	install -s -m 755 "$(PROGRAM)" "$(DESTDIR)$(PREFIX)/bin/rowsource"
	"$(PROGRAM)" man >"$(share)/man/man1/rowsource.1"
	"$(PROGRAM)" completions bash >"$(share)/bash-completion/completions/rowsource"
	"$(PROGRAM)" completions zsh >"$(zsh)/_rowsource"
	"$(PROGRAM)" completions fish >"$(share)/fish/vendor_completions.d/rowsource.fish"

uninstall:
	rm -f "$(DESTDIR)$(PREFIX)/bin/rowsource" "$(share)/man/man1/rowsource.1" \
	    "$(share)/bash-completion/completions/rowsource" "$(zsh)/_rowsource" \
	    "$(share)/fish/vendor_completions.d/rowsource.fish"
	rm -f "$(DESTDIR)$(PKGLIBDIR)/pg_rowsource.so" "$(DESTDIR)$(EXTENSIONDIR)"/pg_rowsource.control "$(DESTDIR)$(EXTENSIONDIR)"/pg_rowsource--*.sql

installcheck:
	@libraries=$$("$(BINDIR)/psql" -XAtqc "SHOW shared_preload_libraries" -d postgres) || exit; \
	case $$libraries in *pg_rowsource*) ;; *) \
	    echo "make installcheck: set shared_preload_libraries = 'pg_rowsource' on this server and restart it" >&2; \
	    exit 1 ;; \
	esac
	"$(PG_REGRESS)" --inputdir="$(srcdir)" --bindir="$(BINDIR)" $(REGRESS_OPTS) $(EXTRA_REGRESS_OPTS) $(REGRESS)

demo: setup
	@KEEP=$(KEEP) $(scripts)/demo.sh

demo-stop:
	@[ ! -d "$(CARGO_TARGET_DIR)" ] || ROWSOURCE_SERVER=demo $(scripts)/server.sh stop

lint:
	@$(scripts)/build.sh clippy
	cd "$(srcdir)" && cargo clippy --locked --ignore-rust-version -p rowsource-core -p rowsource-tests -p rowsource-bench -p rowsource-cli \
	    --all-targets -- -D warnings

test check:
	@$(scripts)/test.sh

test-release:
	@$(scripts)/release.sh

test-all:
	@$(scripts)/test-all.sh $(WHAT)

test-matrix:
	@BRIEF=$(BRIEF) $(scripts)/matrix.sh

test-platforms:
	@status=0; $(scripts)/aarch64.sh || status=1; $(scripts)/assertions.sh 15 || status=1; exit $$status

# Loom checks that protocol in any case (make test).
miri:
	@if rustup component list --toolchain nightly --installed 2>/dev/null | grep -q '^miri'; then \
	    miri() { cargo +nightly miri test --locked --ignore-rust-version -p rowsource-core \
	        --target-dir "$(CARGO_TARGET_DIR)/miri" "$$@"; } && miri --test pending_threads && miri --lib zeroed; \
	else \
	    echo "skipped: Miri is not installed"; \
	fi

docs:
	@$(scripts)/book.sh

package:
	@$(scripts)/package.sh

dist:
	@mkdir -p "$(CARGO_TARGET_DIR)"
	git -C "$(srcdir)" archive --format zip --prefix pg_rowsource-$(VERSION)/ \
	    --output "$(CARGO_TARGET_DIR)/pg_rowsource-$(VERSION).zip" HEAD

# Small and short with QUICK=1: whether all works. Peers that cannot be had are left out of the comparison.
bench_quick = $(filter-out 0,$(QUICK))
bench_output = $(if $(OUTPUT),$(OUTPUT),$(if $(bench_quick),$(CARGO_TARGET_DIR)/bench,bench/results))
# A quick run measures nothing: it need not be fast, and shares what the tests were built from.
bench_profile = $(if $(bench_quick),dev,lab)
bench_peers = $(if $(filter 15,$(MAJOR)),postgresql-15-pg-stat-kcache postgresql-15-pg-wait-sampling postgresql-15-pgaudit)

bench: setup
	@cd "$(srcdir)" && { scripts/setup.sh $(bench_peers) || echo "== going on without $(bench_peers)"; }
	@cd "$(srcdir)" && scripts/build.sh
	@cd "$(srcdir)" && cargo build --locked --ignore-rust-version --profile $(bench_profile) -p rowsource-bench
	@cd "$(srcdir)" && scripts/server.sh tree >/dev/null
	@cd "$(srcdir)" && "$(CARGO_TARGET_DIR)/$(bench_profile:dev=debug)/rowsource-bench" run $(if $(bench_quick),--quick) \
	    --scale $(or $(SCALE),1) --repeat $(or $(REPEAT),1) --output "$(bench_output)" -- "$(WHAT)"

# The script first, because the tests install it. pg_regress ends at a file without an expected result.
accept: SHELL = bash
accept:
	@cd "$(srcdir)" && ROWSOURCE_ACCEPT=1 scripts/test.sh surface >"$(CARGO_TARGET_DIR)/accept.log" 2>&1 || \
	    { echo "make accept: see $(CARGO_TARGET_DIR)/accept.log" >&2; exit 1; }
	@cd "$(srcdir)" && touch $(REGRESS:%=expected/%.out)
	@cd "$(srcdir)" && results=$$(. scripts/common.sh && choose_run && echo "$$RUN/regress/results") && rm -rf "$$results" && \
	    { scripts/test.sh regress >"$(CARGO_TARGET_DIR)/accept.log" 2>&1; cp "$$results"/*.out expected/; } || \
	    { echo "make accept: the tests did not run (see $(CARGO_TARGET_DIR)/accept.log)" >&2; exit 1; }
	@cd "$(srcdir)" && ROWSOURCE_ACCEPT=1 cargo test -q --locked --ignore-rust-version -p rowsource-tests --lib accepted || \
	    { echo "make accept: a number of tests/ratchets.txt rose" >&2; exit 1; }
	@git -C "$(srcdir)" --no-pager diff --stat -- expected docs ARCHITECTURE.md tests/ratchets.txt '*.sql'

clean:
	@[ ! -d "$(CARGO_TARGET_DIR)" ] || [ ! -x "$(PG_CONFIG)" ] || $(scripts)/server.sh remove
	rm -rf "$(CARGO_TARGET_DIR)"
