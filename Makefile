# pg_rowsource: a thin front to cargo and the scripts.
#
#   make                builds the library for the PostgreSQL of PG_CONFIG
#   make install        installs it there (DESTDIR is honoured)
#   make demo           sets up, builds, and shows it at work on a throwaway server (KEEP=1: until make demo-stop)
#   make test           sets up, builds, and runs every test
#   make test-matrix    the same on PostgreSQL 17, 18 and 19, in chroots under target/ (root only)
#   make package        target/packages/postgresql-NN-pg-rowsource_*.deb for the PostgreSQL of PG_CONFIG
#   make dist           target/pg_rowsource-VERSION.zip, as PGXN wants it, from the last commit
#   make bench          measures overhead and accuracy here (bench/README.md); WHAT=name: one experiment
#   make bench QUICK=1  the same in a few minutes, to see that it works
#   make clean          removes what was built, and stops the throwaway servers
#
# PG_CONFIG chooses the PostgreSQL: make install PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config

PG_CONFIG ?= /usr/lib/postgresql/15/bin/pg_config
CARGO_TARGET_DIR ?= $(CURDIR)/target
export PG_CONFIG CARGO_TARGET_DIR

MAJOR = $(shell $(PG_CONFIG) --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
LIBRARY = $(CARGO_TARGET_DIR)/pg$(MAJOR)/pg_rowsource.so
PKGLIBDIR = $(shell $(PG_CONFIG) --pkglibdir)
EXTENSIONDIR = $(shell $(PG_CONFIG) --sharedir)/extension

.PHONY: all build setup install uninstall demo demo-stop test check test-matrix package dist bench bench-quick clean

all: build

build:
	@scripts/build.sh

$(LIBRARY):
	@scripts/build.sh

setup:
	@scripts/setup.sh

install: $(LIBRARY)
	@test -n "$(PKGLIBDIR)" || { echo "make install: cannot run $(PG_CONFIG)" >&2; exit 1; }
	install -d "$(DESTDIR)$(PKGLIBDIR)" "$(DESTDIR)$(EXTENSIONDIR)"
	install -m 755 "$(LIBRARY)" "$(DESTDIR)$(PKGLIBDIR)/pg_rowsource.so"
	install -m 644 pg_rowsource.control $(wildcard pg_rowsource--*.sql) "$(DESTDIR)$(EXTENSIONDIR)/"

uninstall:
	rm -f "$(DESTDIR)$(PKGLIBDIR)/pg_rowsource.so" "$(DESTDIR)$(EXTENSIONDIR)"/pg_rowsource.control "$(DESTDIR)$(EXTENSIONDIR)"/pg_rowsource--*.sql

demo:
	@KEEP=$(KEEP) scripts/demo.sh

demo-stop:
	@scripts/demo-stop.sh

test check:
	@scripts/test.sh

test-matrix:
	@scripts/matrix.sh

package:
	@scripts/package.sh

dist:
	@scripts/dist.sh

bench:
	@WHAT="$(WHAT)" QUICK="$(QUICK)" SCALE="$(SCALE)" REPEAT="$(REPEAT)" OUTPUT="$(OUTPUT)" scripts/bench.sh

bench-quick:
	@scripts/bench-quick.sh

clean:
	@scripts/clean.sh
